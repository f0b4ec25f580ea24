package programs

import (
	"net"
	"slices"

	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// AttachParent attaches what an uplink needs before it gets macvlan devices of pods. It stays as long as this agent runs, and for
// longer if there are such pods.
func (p *Programs) AttachParent(name string, index int) error {
	if p.parents[index] && p.attached[name] == index {
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

// otherParents are the parents that are not (or not any more) uplinks: without programs, their pods would be open.
func (p *Programs) otherParents() (all []net.Interface) {
	for index := range p.parents {
		if slices.ContainsFunc(p.uplinks, func(u netdev.Uplink) bool { return u.Index == index }) {
			continue
		}
		if link, err := net.InterfaceByIndex(index); err == nil {
			all = append(all, *link)
		}
	}
	return all
}
