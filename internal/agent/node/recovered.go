package node

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
)

// Recover adds to a snapshot what it does not tell but the datapath's table of routes does: an agent that
// starts while a manifest is broken, or while their directory is not mounted, must not cut off what an earlier
// one has connected. The table knows no names: other nodes get their address for one. added says how many
// nodes are not from the snapshot.
func Recover(s *cluster.Snapshot, self string, found map[netip.Prefix]fwd.Route) (_ *cluster.Snapshot, added int) {
	_, selfTold := s.Node(self)
	nodes := map[string]*cluster.Node{}
	node := func(name string) *cluster.Node {
		if nodes[name] == nil {
			nodes[name] = &cluster.Node{Name: name}
		}
		return nodes[name]
	}
	for prefix, route := range found {
		if told(s, prefix) {
			continue
		}
		address := prefix.Addr()
		switch {
		case route.Kind == fwd.RouteLocal:
			if !selfTold && !prefix.IsSingleIP() { // else its range has changed, or this is a pod left from the one before
				own := node(self)
				own.PodCIDRs = append(own.PodCIDRs, prefix)
			}
		case route.Kind == fwd.RouteRemote:
			n := node(route.NextHop.String())
			if !slices.Contains(n.Addresses, route.NextHop) {
				n.Addresses = append(n.Addresses, route.NextHop)
			}
			if prefix != HostPrefix(route.NextHop) {
				n.PodCIDRs = append(n.PodCIDRs, prefix)
			}
		case route.Kind == fwd.RouteTunnel:
			n := node(route.NextHop.String())
			if !slices.Contains(n.Addresses, route.NextHop) {
				n.Addresses = append(n.Addresses, route.NextHop)
			}
			if !prefix.IsSingleIP() {
				n.PodCIDRs = append(n.PodCIDRs, prefix)
			} else if !slices.Contains(n.Addresses, address) {
				n.Addresses = append(n.Addresses, address)
			}
		case prefix.IsSingleIP() && !selfTold:
			own := node(self) // its own address; or that of a node off the link, which no device here holds
			own.Addresses = append(own.Addresses, address)
		case prefix.IsSingleIP():
			node(address.String()).Addresses = []netip.Addr{address}
		default:
			n := node("off the link")
			n.PodCIDRs = append(n.PodCIDRs, prefix)
		}
	}
	all := slices.Clone(s.Nodes)
	for _, n := range nodes {
		slices.SortFunc(n.Addresses, netip.Addr.Compare)
		slices.SortFunc(n.PodCIDRs, netip.Prefix.Compare)
		all = append(all, *n)
	}
	slices.SortFunc(all, func(a, b cluster.Node) int { return cmp.Compare(a.Name, b.Name) })
	return &cluster.Snapshot{Nodes: all, Incomplete: s.Incomplete}, len(nodes)
}

// told tells whether the snapshot says whose a prefix is, or has given a part of it to somebody.
func told(s *cluster.Snapshot, prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.Nodes, func(n cluster.Node) bool {
		return slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return HostPrefix(a) == prefix }) ||
			slices.ContainsFunc(n.PodCIDRs, prefix.Overlaps)
	})
}
