package endpoint

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
)

// throughStackUnknown is the reason for a pod on the kernel stack whose file was lost: the datapath's table has no
// reasons.
const throughStackUnknown = "the reason was in its lost file"

// adopt takes over the endpoints of an earlier agent: from their files, or else from the datapath's table,
// which has the device and the address. It removes nothing.
func (e *Endpoints) adopt() error {
	all, err := e.store.load()
	if err != nil {
		e.Log.Error("endpoint files", "error", err) // the table below has these addresses, too
	}
	for _, p := range all {
		e.all[p.HostDevice] = p
	}
	devices, err := device.Pods.HostEnds()
	if err != nil {
		return err
	}
	if err := e.adoptFromTable(devices); err != nil {
		return err
	}
	for _, d := range devices { // files of version 0.1.0 lack it
		if p, ok := e.all[d.Name]; ok && p.Device == "" {
			p.Device = string(d.Kind)
			e.all[d.Name] = p
		}
	}
	isGone := func(name string) int {
		if slices.ContainsFunc(devices, func(d device.HostEnd) bool { return d.Name == name }) {
			return 0
		}
		return 1
	}
	// In the order of addresses: new ones are allocated after the last reservation. Of two files with one address,
	// the one whose device exists is right.
	for _, name := range slices.SortedFunc(maps.Keys(e.all), func(x, y string) int {
		return cmp.Or(slices.CompareFunc(e.all[x].Addresses, e.all[y].Addresses, netip.Addr.Compare), isGone(x)-isGone(y))
	}) {
		p := e.all[name]
		for _, addr := range p.Addresses {
			if err := e.Pool.Reserve(ownerOf(p), addr); err != nil {
				// A wrong file must not keep the agent from the other pods.
				e.Log.Error("endpoint not adopted", "pod", p.PodName(), "device", name, "error", err)
				e.Pool.Release(name)
				delete(e.all, name)
				break
			}
		}
	}
	for _, p := range e.all {
		e.IPPools.Adopt(p)
	}
	if len(e.all) > 0 {
		e.Log.Info("endpoints adopted", "count", len(e.all))
	}
	return nil
}

func (e *Endpoints) adoptFromTable(devices []device.HostEnd) error {
	table, err := e.Datapath.Endpoints.All()
	if err != nil {
		return err
	}
	macvlans, err := e.Datapath.Macvlans.All()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if _, ok := e.all[d.Name]; ok {
			continue
		}
		p := agentapi.Endpoint{HostDevice: d.Name, HostIfIndex: d.Index, HostMAC: d.MAC.String(), MTU: d.MTU, Namespace: d.NetnsID + 1}
		for addr, entry := range table {
			if entry.Interface == d.Index {
				p.Addresses = append(p.Addresses, addr)
				p.PodMAC = net.HardwareAddr(entry.PodMAC[:]).String()
				if entry.LimitedEgress || entry.LimitedIngress {
					if p.Bandwidth, err = e.Limits.Recover(d.Index); err != nil {
						return err
					}
				}
				if entry.ThroughStack {
					p.ThroughStack = throughStackUnknown
				}
			}
		}
		if len(p.Addresses) == 0 {
			continue // an incomplete ADD; its DEL removes the device
		}
		slices.SortFunc(p.Addresses, netip.Addr.Compare)
		for key, entry := range macvlans {
			if entry.Interface == d.Index {
				p.Device, p.Macvlan = string(device.Macvlan), &agentapi.Macvlan{Parent: key.Parent, NetnsCookie: entry.Netns}
			}
		}
		e.Log.Warn("endpoint file missing, endpoint recovered from the datapath", "device", d.Name, "addresses", p.Addresses)
		e.all[d.Name] = p
	}
	return nil
}

// DropGone removes endpoints whose device is gone: after a DEL without an agent, or when the pod's namespace
// was deleted. It returns their number.
func (e *Endpoints) DropGone() (int, error) {
	devices, err := device.Pods.HostEnds()
	if err != nil {
		return 0, err
	}
	index := map[string]int{}
	for _, d := range devices {
		index[d.Name] = d.Index
	}
	before := len(e.all)
	var errs []error
	for name, p := range e.all {
		if index[name] != p.HostIfIndex {
			e.Log.Info("endpoint removed: its device is gone", "pod", p.PodName(), "addresses", p.Addresses, "device", name)
			errs = append(errs, e.forget(p))
		}
	}
	return before - len(e.all), errors.Join(errs...)
}
