package programs

import (
	"errors"
	"net"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// AttachParent attaches what an uplink needs before it gets macvlan devices of pods, and stays: see takeParents.
func (p *Programs) AttachParent(name string, index int) error {
	if p.parents[index] && p.attached[name] == index && p.Datapath.CheckMacvlan(name, index) == nil {
		return nil
	}
	if err := p.Datapath.AttachParent(name, index); err != nil {
		return err
	}
	p.parents[index] = true
	return nil
}

// attachWire attaches the programs of an uplink at tc.
func (p *Programs) attachWire(name string, index int) error {
	if p.parents[index] {
		return p.Datapath.AttachParent(name, index)
	}
	return p.Datapath.AttachUplink(name, index)
}

// takeParents finds the parents: those of endpoints, and those of earlier agents. A parent stays one as long as it exists, also without
// endpoints: a pod can hide its device in another namespace, where it would be open without programs.
func (p *Programs) takeParents(endpoints *endpoint.Endpoints) error {
	for index := range endpoints.Parents() {
		p.parents[index] = true
	}
	if p.parentsFound || !p.Datapath.HasMacvlan() {
		return nil
	}
	earlier, err := p.Datapath.Parents()
	for _, index := range earlier {
		p.parents[index] = true
	}
	p.parentsFound = err == nil
	return err
}

// otherParents are the parents that are not (or not any more) uplinks: without programs, their pods would be open.
func (p *Programs) otherParents() (all []net.Interface) {
	for _, link := range p.presentParents() {
		if !slices.ContainsFunc(p.uplinks, func(u netdev.Uplink) bool { return u.Index == link.Index }) {
			all = append(all, link)
		}
	}
	return all
}

// presentParents are the parents that exist.
func (p *Programs) presentParents() (all []net.Interface) {
	for index := range p.parents {
		if name, err := netdev.Name(index); err == nil { // once a second: net.InterfaceByIndex reads all devices
			all = append(all, net.Interface{Index: index, Name: name})
		}
	}
	return all
}

// RestoreParents attaches the programs of parents that somebody has detached, and gives the parents where that fails, with the reason.
// Before the first Attach, those of an earlier agent run.
func (p *Programs) RestoreParents() map[int]error {
	lost := map[int]error{}
	if !p.tried {
		return lost
	}
	for _, parent := range p.presentParents() {
		reason := p.Datapath.CheckMacvlan(parent.Name, parent.Index)
		if reason == nil {
			continue
		}
		p.Log.Warn("programs of a parent of macvlan devices are gone and are attached again", "device", parent.Name, "reason", reason)
		err := p.Datapath.AttachParent(parent.Name, parent.Index)
		if err == nil {
			continue
		}
		delete(p.attached, parent.Name)
		if reason := p.Datapath.CheckMacvlan(parent.Name, parent.Index); reason != nil {
			lost[parent.Index] = errors.Join(reason, err)
		}
	}
	return lost
}
