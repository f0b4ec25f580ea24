package node

import (
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/service"
)

// serviceNode is the configuration of this node for Services.
func (f Facts) serviceNode() service.NodeConfig {
	return service.NodeConfig{
		Name:              f.Config.NodeName,
		NodePortAddresses: f.nodePortAddresses(),
		HostPortAddresses: f.hostPortAddresses(),
		Pods:              f.strays(),
		APIServer:         f.APIServer,
		ExternalIPs:       f.LB.ExternalIPs,
		Limits:            service.Limits{Frontends: f.LB.Sizes.Services, Backends: f.LB.Sizes.Backends},
		DSR:               f.LB.NodePortMode == lb.NodePortDSR,
	}
}

// hostPortAddresses are this node's addresses except link-local ones, which serve the node itself, such as a DNS
// cache or the cloud's metadata, and are not for pods.
func (f Facts) hostPortAddresses() []netip.Addr {
	return slices.DeleteFunc(slices.Clone(f.Local), netip.Addr.IsLinkLocalUnicast)
}

// strays are the addresses of local pods outside of the node's pod ranges.
func (f Facts) strays() (all []netip.Addr) {
	own, _ := f.Snapshot.Node(f.Config.NodeName)
	for _, e := range f.Endpoints {
		for _, a := range e.Addresses {
			if isStray(a, own.PodCIDRs) {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// nodePortAddresses are this node's addresses in the configured networks, or else those of the Node object that a
// device has.
func (f Facts) nodePortAddresses() (all []netip.Addr) {
	own, _ := f.Snapshot.Node(f.Config.NodeName)
	for _, a := range f.Local {
		configured := slices.ContainsFunc(f.LB.NodePortAddresses, func(p netip.Prefix) bool { return p.Contains(a) })
		ofNode := slices.Contains(own.Addresses, a) || slices.Contains(own.ExternalIPs, a)
		if configured || len(f.LB.NodePortAddresses) == 0 && ofNode {
			all = append(all, a)
		}
	}
	return all
}

// externalUplinks are the external devices in the form of the datapath.
func (f Facts) externalUplinks() map[int]fwd.Uplink {
	all := map[int]fwd.Uplink{}
	for _, u := range f.AllUplinks() {
		all[u.Index] = fwd.Uplink{
			IPv4: f.masqueradeAddress(u, true), IPv6: f.masqueradeAddress(u, false),
			MAC: macOf(u.MAC), MTU: u.MTU,
		}
	}
	return all
}

// AllUplinks are all external devices, the one to the other nodes first.
func (f Facts) AllUplinks() []netdev.Uplink {
	if f.Uplink == nil {
		return nil
	}
	return append([]netdev.Uplink{*f.Uplink}, f.Uplinks...)
}

// masqueradeAddress replaces a pod's address in packets that leave by a device: an address by which the cluster knows
// this node, if the device has one, else the device's first, else any by which the cluster knows the node; the zero
// Addr if there is none of the family.
func (f Facts) masqueradeAddress(u netdev.Uplink, ipv4 bool) netip.Addr {
	for _, a := range f.Held {
		if a.Is4() == ipv4 && holds(u, a) {
			return a
		}
	}
	for _, p := range u.Addresses {
		if p.Addr().Is4() == ipv4 {
			return p.Addr()
		}
	}
	a, _ := first(f.Held, ipv4)
	return a
}
