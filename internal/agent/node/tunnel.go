package node

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

// Tunnel is this node's VXLAN device, or why there is none.
type Tunnel struct {
	// Index of the device; 0 without one. Made says that it is new: routes through an earlier one are gone.
	Index int
	Made  bool
	// Missing says why a needed device does not exist.
	Missing error
}

// tunnelled reports whether a node's addresses of a family are reached through VXLAN: all if so configured, or else
// those of a node that has no address of that family on the uplink's link.
func (f Facts) tunnelled(n cluster.Node, ipv4 bool) bool {
	switch f.Config.Tunnel {
	case TunnelVXLAN:
		return f.Uplink != nil
	case TunnelAuto:
		_, direct := f.nextHop(n, ipv4)
		return f.Uplink != nil && !direct
	}
	return false
}

// tunnelEnd is the address of a node that tunnels lead to: one for both families, so that a node has one MTU. It is
// IPv4 if both nodes have that, which takes 20 bytes less than IPv6.
func (f Facts) tunnelEnd(n cluster.Node) (end netip.Addr, ok bool) {
	for _, ipv4 := range []bool{true, false} {
		_, own := first(f.Held, ipv4)
		if end, ok := first(n.Addresses, ipv4); ok && own {
			return end, true
		}
	}
	return netip.Addr{}, false
}

// first is the first address of a family.
func first(all []netip.Addr, ipv4 bool) (_ netip.Addr, ok bool) {
	for _, a := range all {
		if a.Is4() == ipv4 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// TunnelSpec is the desired VXLAN device; needed is false if no node is reached through it.
func (f Facts) TunnelSpec() (spec vxlan.Spec, needed bool) {
	for _, n := range f.Snapshot.Nodes {
		if n.Name == f.Config.NodeName {
			continue
		}
		for _, ipv4 := range []bool{true, false} {
			if end, ok := f.tunnelEnd(n); ok && !f.encrypted(n) && has(n, ipv4) && f.tunnelled(n, ipv4) && f.tunnelCarries(end, ipv4) {
				needed = true
				spec.MTU = max(spec.MTU, f.Uplink.MTU-vxlan.Overhead(end))
			}
		}
	}
	if f.Config.Encryption.On() && f.Uplink != nil { // its program redirects what the kernel stack sends
		needed = true
		spec.MTU = max(spec.MTU, f.encryptedMTUMin())
	}
	spec.Port, spec.Addresses = f.Config.TunnelPort, f.tunnelSources()
	return spec, needed
}

// has reports whether a node has anything of a family.
func has(n cluster.Node, ipv4 bool) bool {
	_, ok := first(n.Addresses, ipv4)
	return ok || slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() == ipv4 })
}

// tunnelSources are this node's tunnel endpoints: of each family the first address by which the others know it.
func (f Facts) tunnelSources() (sources []netip.Addr) {
	for _, ipv4 := range []bool{true, false} {
		if a, ok := first(f.Held, ipv4); ok {
			sources = append(sources, a)
		}
	}
	return sources
}

// tunnelMTU is the largest packet that fits into a tunnel to this address, in bytes.
func (f Facts) tunnelMTU(end netip.Addr) int {
	mtu := f.Uplink.MTU - vxlan.Overhead(end)
	if f.Config.MTU == 0 {
		return mtu
	}
	return min(f.Config.MTU, mtu)
}

// tunnelCarries reports whether packets of a family fit into a tunnel to this address. The kernel disables IPv6 on a
// device with an MTU below minMTU.
func (f Facts) tunnelCarries(end netip.Addr, ipv4 bool) bool {
	return ipv4 || f.tunnelMTU(end) >= minMTU
}

// podMTUMax is the largest MTU of pods that at least one path to another node supports: that of the uplink, or, if
// all nodes are behind tunnels, that of the narrowest tunnel. With encryption it is that of encrypted packets, also while
// some nodes have no key yet.
func (f Facts) podMTUMax() int {
	if f.Config.Encryption.On() {
		return f.encryptedMTUMin()
	}
	if f.Config.Tunnel != TunnelVXLAN {
		return f.Uplink.MTU
	}
	mtu := f.Uplink.MTU - vxlan.Overhead(netip.IPv4Unspecified())
	if !slices.ContainsFunc(f.Held, netip.Addr.Is4) {
		mtu = f.Uplink.MTU - vxlan.Overhead(netip.IPv6Unspecified())
	}
	for _, n := range f.Snapshot.Nodes {
		if end, ok := f.tunnelEnd(n); ok && n.Name != f.Config.NodeName {
			mtu = min(mtu, f.Uplink.MTU-vxlan.Overhead(end))
		}
	}
	return mtu
}

// addTunnelled adds the routes to a node's addresses of one family through VXLAN. ok is false if that is impossible.
func (d *Desired) addTunnelled(n cluster.Node, ipv4 bool, own cluster.Node, f Facts) (mtu int, ok bool) {
	end, ok := f.tunnelEnd(n)
	if !ok {
		d.unreachable(n, ipv4, fmt.Sprintf("none of its addresses %v is of a family of which this node has an InternalIP", n.Addresses))
		return 0, false
	}
	if !f.tunnelCarries(end, ipv4) {
		d.unreachable(n, ipv4, fmt.Sprintf("a tunnel over %s carries packets of %d bytes, and IPv6 needs %d", f.Uplink.Name, f.tunnelMTU(end), minMTU))
		return 0, false
	}
	if f.Tunnel.Index == 0 {
		d.unreachable(n, ipv4, fmt.Sprintf("none of its addresses %v is on the link of %s, and there is no tunnel: %v", n.Addresses, f.Uplink.Name, f.Tunnel.Missing))
		return 0, false
	}
	mtu = f.tunnelMTU(end)
	d.addThroughTunnel(n, ipv4, own, f, fwd.Route{
		Kind: fwd.RouteTunnel, Interface: f.Tunnel.Index, MTU: mtu, NextHop: end,
		NextHopMAC: macOf(vxlan.MAC), UplinkMAC: macOf(vxlan.SenderMAC),
	})
	return mtu, true
}

// addThroughTunnel adds this route to a node's addresses of one family, and routes of the kernel stack through the VXLAN
// device. Without a device the stack rejects the packets.
func (d *Desired) addThroughTunnel(n cluster.Node, ipv4 bool, own cluster.Node, f Facts, to fwd.Route) {
	add := func(r route.Route) {
		if to.Interface == 0 {
			r = route.Route{Prefix: r.Prefix, Unreachable: true, Table: r.Table}
		}
		d.KernelRoutes = append(d.KernelRoutes, r)
	}
	for _, a := range n.Addresses {
		if a.Is4() != ipv4 {
			continue
		}
		d.Routes[HostPrefix(a)] = to
		// For pods only: the node itself reaches this address, which may be the tunnel's end, by the uplink.
		add(vxlan.PodRoute(HostPrefix(a), f.Tunnel.Index, to.MTU))
		d.TunnelRules = true
	}
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() != ipv4 {
			continue
		}
		d.Routes[p] = to
		kernel := vxlan.Route(p, f.Tunnel.Index, to.MTU)
		kernel.Source = ownSource(own, ipv4, f.Uplink)
		add(kernel)
	}
}

// unreachable reports why the pods of a node are unreachable, if it has any of that family.
func (d *Desired) unreachable(n cluster.Node, ipv4 bool, why string) {
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() == ipv4 {
			d.Problem("pods of node %q in %s cannot be reached: %s", n.Name, p, why)
		}
	}
}
