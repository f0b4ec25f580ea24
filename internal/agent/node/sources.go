package node

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/netdev"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// PoolSource is how this node routes what pods of an IPPool send: those whose router it is, with veth and netkit devices. One
// without Pool and Routes has the pods that no other one has.
type PoolSource struct {
	Pool string
	route.Source
}

// addSources routes what pods of IPPools with gateways or routes send, and what those of all other pools send to nodes behind tunnels.
func (d *Desired) addSources(own cluster.Node, f Facts) {
	addresses := map[string][]netip.Addr{}
	for _, e := range f.Endpoints {
		if e.Pool != "" && e.Macvlan == nil {
			addresses[e.Pool] = append(addresses[e.Pool], e.Addresses...)
		}
	}
	for _, p := range f.IPPools {
		here := p.Device != cluster.DeviceMacvlan && (p.Nodes == nil || p.Nodes.Matches(own.Labels))
		if len(p.Gateways)+len(p.Routes) == 0 || p.Invalid != "" || !here && len(addresses[p.Name]) == 0 {
			continue
		}
		uplink, err := PoolUplink(f.IPPools, f.AllUplinks(), f.VLANs, p.Name)
		if err != nil {
			continue // a problem of each pod, or of the VLAN
		}
		s := PoolSource{Pool: p.Name}
		for _, subnet := range p.Subnets {
			ipv4 := subnet.Addr().Is4()
			if !ipv4 && f.NoIPv6 {
				continue
			}
			routes, err := f.sourceRoutes(p, uplink, ipv4)
			if err != nil && len(addresses[p.Name]) > 0 {
				d.Problem("IPPool %s: %v: pods on this node take its own routes", p.Name, err)
			}
			if len(routes) == 0 {
				continue
			}
			s.Within = append(s.Within, subnet)
			s.Routes = append(append(s.Routes, route.Route{Prefix: subnet, Device: uplink.Index}), routes...)
			for _, a := range addresses[p.Name] {
				if a.Is4() == ipv4 {
					s.Addresses = append(s.Addresses, a)
				}
			}
		}
		switch {
		case len(s.Routes) == 0:
		case len(d.Sources) == route.SourcesMax:
			d.Problem("IPPool %s: this node has %d IPPools with gateways already, at most %d: pods on this node take its own routes", p.Name, len(d.Sources), route.SourcesMax)
		default:
			d.Sources = append(d.Sources, s)
		}
	}
	d.addTunnelSource(addresses, f.IPPools)
}

// addTunnelSource adds the addresses of pods of all pools that no Source has. The rule of the node's own ranges does not have them.
func (d *Desired) addTunnelSource(addresses map[string][]netip.Addr, pools []*cluster.IPPool) {
	if !d.TunnelRules {
		return
	}
	routed := map[netip.Addr]bool{}
	for _, s := range d.Sources {
		for _, a := range s.Addresses {
			routed[a] = true
		}
	}
	var rest PoolSource
	for _, pool := range slices.Sorted(maps.Keys(addresses)) {
		before := len(rest.Addresses)
		for _, a := range addresses[pool] {
			if !routed[a] {
				rest.Addresses = append(rest.Addresses, a)
			}
		}
		if len(rest.Addresses) == before {
			continue
		}
		if at := slices.IndexFunc(pools, func(p *cluster.IPPool) bool { return p.Name == pool }); at >= 0 {
			rest.Within = append(rest.Within, pools[at].Subnets...)
		}
	}
	if len(rest.Addresses) > 0 {
		d.Sources = append(d.Sources, rest)
	}
}

// sourceRoutes are the routes of one family to a pool's routers. A router that this node itself is needs none.
func (f Facts) sourceRoutes(p *cluster.IPPool, uplink netdev.Uplink, ipv4 bool) (routes []route.Route, err error) {
	all := slices.Clone(p.Routes)
	for _, g := range p.Gateways {
		all = append(all, cluster.IPPoolRoute{To: defaultLike(g), Via: g})
	}
	seen := map[netip.Prefix]bool{}
	for _, r := range all {
		if r.Via.Is4() != ipv4 || seen[r.To.Masked()] || slices.Contains(f.Local, r.Via) {
			continue
		}
		seen[r.To.Masked()] = true
		if !onLink(r.Via, uplink) && !r.Via.IsLinkLocalUnicast() {
			return nil, fmt.Errorf("router %s is not on the link of %s, which has no address in its subnet", r.Via, uplink.Name)
		}
		routes = append(routes, route.Route{Prefix: r.To, Via: r.Via, Device: uplink.Index})
	}
	return routes, nil
}

// defaultLike is the prefix of default routes of an address's family.
func defaultLike(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
