package agent

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

// adoptEndpoints takes over the endpoints of an earlier agent: from their files, or else from the datapath's table,
// which has the device and the address. It removes nothing.
func (a *Agent) adoptEndpoints() error {
	all, err := a.store.load()
	if err != nil {
		a.log.Error("endpoint files", "error", err) // the table below has these addresses, too
	}
	for _, e := range all {
		a.endpoints[e.HostDevice] = e
	}
	devices, err := device.Pods.HostEnds()
	if err != nil {
		return err
	}
	if err := a.adoptFromTable(devices); err != nil {
		return err
	}
	for _, d := range devices {
		if e, ok := a.endpoints[d.Name]; ok && e.HostIfIndex == d.Index {
			e.Namespace = d.NetnsID + 1 // files of earlier agents do not have it
			a.endpoints[d.Name] = e
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
	for _, name := range slices.SortedFunc(maps.Keys(a.endpoints), func(x, y string) int {
		return cmp.Or(slices.CompareFunc(a.endpoints[x].Addresses, a.endpoints[y].Addresses, netip.Addr.Compare), isGone(x)-isGone(y))
	}) {
		e := a.endpoints[name]
		for _, addr := range e.Addresses {
			if err := a.pool.Reserve(ownerOf(e), addr); err != nil {
				// A wrong file must not keep the agent from the other pods.
				a.log.Error("endpoint not adopted", "pod", e.PodName(), "device", name, "error", err)
				a.pool.Release(name)
				delete(a.endpoints, name)
				break
			}
		}
	}
	if len(a.endpoints) > 0 {
		a.log.Info("endpoints adopted", "count", len(a.endpoints))
	}
	return nil
}

func (a *Agent) adoptFromTable(devices []device.HostEnd) error {
	table, err := a.datapath.Endpoints.All()
	if err != nil {
		return err
	}
	for _, d := range devices {
		if _, ok := a.endpoints[d.Name]; ok {
			continue
		}
		e := agentapi.Endpoint{HostDevice: d.Name, HostIfIndex: d.Index, HostMAC: d.MAC.String(), MTU: d.MTU}
		for addr, entry := range table {
			if entry.Interface == d.Index {
				e.Addresses = append(e.Addresses, addr)
				e.PodMAC = net.HardwareAddr(entry.PodMAC[:]).String()
				if entry.ThroughStack {
					e.ThroughStack = throughStackUnknown
				}
			}
		}
		if len(e.Addresses) == 0 {
			continue // an incomplete ADD; its DEL removes the device
		}
		slices.SortFunc(e.Addresses, netip.Addr.Compare)
		a.log.Warn("endpoint file missing, endpoint recovered from the datapath", "device", d.Name, "addresses", e.Addresses)
		a.endpoints[d.Name] = e
	}
	return nil
}

// dropGoneEndpoints removes endpoints whose device is gone: after a DEL without an agent, or when the pod's namespace
// was deleted. It returns their number.
func (a *Agent) dropGoneEndpoints() (int, error) {
	devices, err := device.Pods.HostEnds()
	if err != nil {
		return 0, err
	}
	index := map[string]int{}
	for _, d := range devices {
		index[d.Name] = d.Index
	}
	before := len(a.endpoints)
	var errs []error
	for name, e := range a.endpoints {
		if index[name] != e.HostIfIndex {
			a.log.Info("endpoint removed: its device is gone", "pod", e.PodName(), "addresses", e.Addresses, "device", name)
			errs = append(errs, a.forget(e))
		}
	}
	return before - len(a.endpoints), errors.Join(errs...)
}

// podAddresses are the addresses of all pods. The lock is held.
func (a *Agent) podAddresses() (all []netip.Addr) {
	for _, e := range a.endpoints {
		all = append(all, e.Addresses...)
	}
	return all
}

// namespaces are the network namespaces of the pods.
func (a *Agent) namespaces() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.endpoints {
		if e.Netns != "" {
			all = append(all, e.Netns)
		}
	}
	return all
}
