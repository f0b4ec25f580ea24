package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/device"
)

// tunnel is this node's VXLAN device, or why there is none.
type tunnel struct {
	// index of the device; 0 where there is none. made says that it is new: routes that led through one before are gone.
	index int
	made  bool
	// missing says why there is none although one is needed.
	missing error
}

// tunnelled tells whether what belongs to a node, of IPv4 or of IPv6, is reached through VXLAN: all of it if so asked,
// or else what cannot go over the uplink's link, because none of the node's addresses of that family is there.
func (f facts) tunnelled(n cluster.Node, ipv4 bool) bool {
	switch f.config.Tunnel {
	case TunnelVXLAN:
		return f.uplink != nil
	case TunnelAuto:
		return f.uplink != nil && !slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool {
			return a.Is4() == ipv4 && onLink(a, *f.uplink)
		})
	}
	return false
}

// tunnelEnd is the address of a node that tunnels to it lead to: one for all that it has, so that a node has one MTU.
// It is of IPv4 where both nodes have that, which takes 20 bytes less than IPv6 does.
func (f facts) tunnelEnd(n cluster.Node) (end netip.Addr, ok bool) {
	for _, ipv4 := range []bool{true, false} {
		same := func(a netip.Addr) bool { return a.Is4() == ipv4 }
		if at := slices.IndexFunc(n.Addresses, same); at >= 0 && slices.ContainsFunc(f.held, same) {
			return n.Addresses[at], true
		}
	}
	return netip.Addr{}, false
}

// tunnelSpec says what the VXLAN device has to be; needed is false where no node is reached through it.
func (f facts) tunnelSpec() (spec device.TunnelSpec, needed bool) {
	for _, n := range f.snapshot.Nodes {
		if n.Name == f.config.NodeName {
			continue
		}
		for _, ipv4 := range []bool{true, false} {
			if end, ok := f.tunnelEnd(n); ok && has(n, ipv4) && f.tunnelled(n, ipv4) && f.tunnelCarries(end, ipv4) {
				needed = true
				spec.MTU = max(spec.MTU, f.uplink.MTU-device.TunnelOverhead(end))
			}
		}
	}
	spec.Port, spec.Addresses = f.config.TunnelPort, f.tunnelSources()
	return spec, needed
}

// has tells whether anything of a node is of IPv4, or of IPv6.
func has(n cluster.Node, ipv4 bool) bool {
	return slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return a.Is4() == ipv4 }) ||
		slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is4() == ipv4 })
}

// tunnelSources are this node's own ends of tunnels: of each family the first address by which the others know it.
func (f facts) tunnelSources() (sources []netip.Addr) {
	for _, ipv4 := range []bool{true, false} {
		if at := slices.IndexFunc(f.held, func(a netip.Addr) bool { return a.Is4() == ipv4 }); at >= 0 {
			sources = append(sources, f.held[at])
		}
	}
	return sources
}

// tunnelMTU is the largest packet that fits into a tunnel to this address, in bytes.
func (f facts) tunnelMTU(end netip.Addr) int {
	room := f.uplink.MTU - device.TunnelOverhead(end)
	if f.config.MTU == 0 {
		return room
	}
	return min(f.config.MTU, room)
}

// tunnelCarries tells whether packets of a family fit into a tunnel to this address. The kernel has no IPv6 on a device
// with a smaller MTU than minMTU, so there would not even be routes for it.
func (f facts) tunnelCarries(end netip.Addr, ipv4 bool) bool {
	return ipv4 || f.tunnelMTU(end) >= minMTU
}

// podRoom is the largest MTU of pods with which some way to another node needs no smaller packets: that of the
// uplink, or, where all nodes are behind tunnels, that of the narrowest tunnel.
func (f facts) podRoom() int {
	if f.config.Tunnel != TunnelVXLAN {
		return f.uplink.MTU
	}
	room := f.uplink.MTU - device.TunnelOverhead(netip.IPv4Unspecified())
	if !slices.ContainsFunc(f.held, netip.Addr.Is4) {
		room = f.uplink.MTU - device.TunnelOverhead(netip.IPv6Unspecified())
	}
	for _, n := range f.snapshot.Nodes {
		if end, ok := f.tunnelEnd(n); ok && n.Name != f.config.NodeName {
			room = min(room, f.uplink.MTU-device.TunnelOverhead(end))
		}
	}
	return room
}

// addTunnelled adds the routes to what a node has of one family, through VXLAN. ok is false where that cannot be.
func (d *desired) addTunnelled(n cluster.Node, ipv4 bool, own cluster.Node, f facts) (mtu int, ok bool) {
	end, ok := f.tunnelEnd(n)
	if !ok {
		d.unreachable(n, ipv4, fmt.Sprintf("none of its addresses %v is of a family of which this node has an InternalIP", n.Addresses))
		return 0, false
	}
	if !f.tunnelCarries(end, ipv4) {
		d.unreachable(n, ipv4, fmt.Sprintf("a tunnel over %s carries packets of %d bytes, and IPv6 needs %d", f.uplink.Name, f.tunnelMTU(end), minMTU))
		return 0, false
	}
	if f.tunnel.index == 0 {
		d.unreachable(n, ipv4, fmt.Sprintf("none of its addresses %v is on the link of %s, and there is no tunnel: %v", n.Addresses, f.uplink.Name, f.tunnel.missing))
		return 0, false
	}
	mtu = f.tunnelMTU(end)
	route := datapath.Route{
		Kind: datapath.RouteTunnel, Interface: f.tunnel.index, MTU: mtu, NextHop: end,
		NextHopMAC: macOf(device.TunnelMAC), UplinkMAC: macOf(device.TunnelSenderMAC),
	}
	for _, a := range n.Addresses {
		if a.Is4() != ipv4 {
			continue
		}
		d.routes[hostPrefix(a)] = route
		// For pods only: the node itself reaches this address, which may be the tunnel's end, by the uplink.
		forPods := device.TunnelRoute(hostPrefix(a), f.tunnel.index, mtu)
		forPods.Table = device.TunnelTable
		d.kernelRoutes = append(d.kernelRoutes, forPods)
		d.tunnelRules = true
	}
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() != ipv4 {
			continue
		}
		d.routes[p] = route
		kernel := device.TunnelRoute(p, f.tunnel.index, mtu)
		kernel.Source = ownSource(own, ipv4, f.uplink)
		d.kernelRoutes = append(d.kernelRoutes, kernel)
	}
	return mtu, true
}

// unreachable says why there is no way to the pods of a node, if it has any of that family.
func (d *desired) unreachable(n cluster.Node, ipv4 bool, why string) {
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() == ipv4 {
			d.problem("pods of node %q in %s cannot be reached: %s", n.Name, p, why)
		}
	}
}

// syncTunnel makes the VXLAN device where one is needed, with its programs before the first packet. That there is
// none is a problem of the nodes behind it and of no others. One that is not needed goes last: see apply.
func (a *Agent) syncTunnel(f facts) tunnel {
	spec, needed := f.tunnelSpec()
	if !needed {
		return tunnel{}
	}
	index, made, err := device.SyncTunnel(spec, func(index int) error {
		if err := a.datapath.AttachTunnel(device.TunnelName, index); err != nil {
			return err
		}
		a.attached[device.TunnelName] = index
		return nil
	})
	if err != nil {
		return tunnel{missing: err}
	}
	if made {
		a.log.Info("tunnel device made", "device", device.TunnelName, "port", spec.Port, "mtu", spec.MTU)
	}
	return tunnel{index: index, made: made}
}

// applyTunnelSources tells the datapath which addresses tunnels begin at.
func (a *Agent) applyTunnelSources(sources []netip.Addr) error {
	var ipv4, ipv6 netip.Addr
	for _, s := range sources {
		if s.Is4() {
			ipv4 = s
		} else {
			ipv6 = s
		}
	}
	return a.datapath.Tunnel.SetSources(ipv4, ipv6)
}

// applyTunnelRules sends what pods send to addresses of tunnelled nodes through the tunnel also where the host's
// stack forwards it.
func (a *Agent) applyTunnelRules(want desired) error {
	var sources []netip.Prefix
	if want.tunnelRules {
		sources = want.podCIDRs
	}
	_, err := device.SyncRules(sources)
	return err
}

// removeTunnel removes the VXLAN device that no route leads to any more, and then what is left of its programs.
func (a *Agent) removeTunnel(want desired) error {
	if want.tunnel.index != 0 || want.tunnel.missing != nil {
		return nil
	}
	if _, err := device.RemoveTunnel(); err != nil {
		return err
	}
	delete(a.attached, device.TunnelName)
	return a.datapath.Detach(device.TunnelName)
}

// tunnelChoice says for how many nodes there is a tunnel and why.
func (a *Agent) tunnelChoice() agentapi.Choice {
	c := agentapi.Choice{Name: "tunnel", Asked: string(a.config.Tunnel), Chosen: string(TunnelNone), Why: "as asked"}
	through := 0
	for _, n := range a.current.nodes {
		if strings.Contains(n.Way, agentapi.WayVXLAN) {
			through++
		}
	}
	switch {
	case through > 0:
		c.Chosen = string(TunnelVXLAN)
		c.Why = fmt.Sprintf("as asked: to all nodes, to UDP port %d", a.config.TunnelPort)
		if a.config.Tunnel == TunnelAuto {
			c.Why = fmt.Sprintf("%d of %d other nodes are not on the uplink's link; to UDP port %d", through, len(a.current.nodes), a.config.TunnelPort)
		}
	case a.current.tunnel.missing != nil:
		c.Why = a.current.tunnel.missing.Error()
	case a.config.Tunnel == TunnelVXLAN:
		c.Why = "there is no other node"
	case a.config.Tunnel == TunnelAuto:
		c.Why = "all other nodes are on the uplink's link"
	}
	return c
}
