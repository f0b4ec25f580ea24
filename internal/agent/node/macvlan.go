package node

import (
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/datapath/macvlan"
)

// MacvlanEntry is the datapath's entry of a pod's macvlan device.
func MacvlanEntry(e agentapi.Endpoint) (macvlan.Key, macvlan.Pod) {
	entry := macvlan.Pod{Netns: e.Macvlan.NetnsCookie, Interface: e.HostIfIndex, HostMAC: ParseMAC(e.HostMAC)}
	for _, a := range e.Addresses {
		if a.Is4() {
			entry.IPv4 = a
		} else {
			entry.IPv6 = a
		}
	}
	return macvlan.Key{Parent: e.Macvlan.Parent, MAC: ParseMAC(e.PodMAC)}, entry
}

// parentOf is the parent of an endpoint's macvlan device; 0 if it has another kind of device.
func parentOf(e agentapi.Endpoint) int {
	if e.Macvlan == nil {
		return 0
	}
	return e.Macvlan.Parent
}
