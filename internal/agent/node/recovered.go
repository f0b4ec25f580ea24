package node

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
)

// Recover adds nodes from the datapath's routes that a snapshot does not have. An agent that starts while a manifest
// is invalid, or while the directory is not mounted, must not disconnect nodes of an earlier agent. The routes have
// no names: other nodes are named by their address. added is the number of added nodes.
func Recover(s *cluster.Snapshot, self string, found map[netip.Prefix]fwd.Route) (_ *cluster.Snapshot, added int) {
	_, selfListed := s.Node(self)
	nodes := map[string]*cluster.Node{}
	node := func(name string) *cluster.Node {
		if nodes[name] == nil {
			nodes[name] = &cluster.Node{Name: name, Recovered: true}
		}
		return nodes[name]
	}
	for prefix, route := range found {
		if listed(s, prefix) {
			continue
		}
		address := prefix.Addr()
		switch {
		case route.Kind == fwd.RouteLocal:
			if !selfListed && !prefix.IsSingleIP() { // else its range has changed, or this is a leftover pod of it
				own := node(self)
				own.PodCIDRs = append(own.PodCIDRs, prefix)
			}
		case route.Kind == fwd.RouteRemote, route.Kind == fwd.RouteTunnel, route.Kind == fwd.RouteEncrypted:
			if !route.NextHop.IsValid() || route.NextHop.IsUnspecified() { // encrypted, and closed: its node had no address
				n := node("without an address")
				n.PodCIDRs = append(n.PodCIDRs, prefix)
				continue
			}
			n := node(route.NextHop.String())
			if !slices.Contains(n.Addresses, route.NextHop) {
				n.Addresses = append(n.Addresses, route.NextHop)
			}
			switch {
			case prefix == HostPrefix(route.NextHop):
			case route.Kind != fwd.RouteRemote && prefix.IsSingleIP():
				n.Addresses = append(n.Addresses, address)
			default:
				n.PodCIDRs = append(n.PodCIDRs, prefix)
			}
		case prefix.IsSingleIP() && !selfListed:
			own := node(self) // its own address; or that of a node off the link, which no local device has
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

// listed reports whether the snapshot has the owner of a prefix, or of a part of it.
func listed(s *cluster.Snapshot, prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.Nodes, func(n cluster.Node) bool {
		return slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return HostPrefix(a) == prefix }) ||
			slices.ContainsFunc(n.PodCIDRs, prefix.Overlaps)
	})
}
