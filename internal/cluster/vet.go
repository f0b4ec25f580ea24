package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Vetter checks the addresses in the status of Nodes, which each kubelet writes for its own. Whoever has the
// credentials of one node may write anything there, and must not receive traffic of others by it. It keeps the last
// snapshot, and is not safe for concurrent use.
type Vetter struct {
	// Self is the name of this node.
	Self string
	// Networks are the networks of node addresses; empty: see believable.
	Networks []netip.Prefix

	nodes    []Node
	services []*Service
	// claimed are the addresses of nodes, ranges the pod ranges of nodes.
	claimed  map[netip.Addr]bool
	ranges   []nodeRange
	vetted   []Node
	problems []ObjectProblem
}

// Vet gives a snapshot with the valid addresses of nodes, and the problems of the others. The list of nodes is the
// same until something in it changes.
func (v *Vetter) Vet(s *Snapshot) (*Snapshot, []ObjectProblem) {
	if v.vetted == nil || !Same(v.nodes, s.Nodes) || !Same(v.services, s.Services) {
		if v.vetted == nil || !Same(v.nodes, s.Nodes) {
			v.claimed, v.ranges = claimed(s.Nodes), sortedRanges(s.Nodes)
		}
		v.nodes, v.services = s.Nodes, s.Services
		vetted, problems := v.vet(s)
		if v.problems = problems; v.vetted == nil || !EqualNodes(vetted, v.vetted) {
			v.vetted = vetted
		}
	}
	with := *s
	with.Nodes = v.vetted
	return &with, v.problems
}

func (v *Vetter) vet(s *Snapshot) ([]Node, []ObjectProblem) {
	taken := v.taken(s)
	public := v.publicSelf(s)
	nodes := append([]Node{}, s.Nodes...)
	var problems []ObjectProblem
	for i := range nodes {
		n := &nodes[i]
		before := map[bool]bool{} // by family, of this node
		var refused []string
		isWrong := func(a netip.Addr, external bool) bool {
			first := !external && !before[a.Is4()]
			before[a.Is4()] = true
			reason := cmp.Or(v.believable(a, first, external, public[a.Is4()]), v.inRange(a))
			if of, found := taken[a]; reason == "" && found && (of.clusterIP || !first) {
				reason = of.what
			}
			if reason != "" {
				refused = append(refused, fmt.Sprintf("Node %s: address %s in its status is refused: %s", n.Name, a, reason))
			}
			return reason != ""
		}
		keep := func(all []netip.Addr, external bool) (kept []netip.Addr) {
			for _, a := range all {
				if !isWrong(a, external) {
					kept = append(kept, a)
				}
			}
			return kept
		}
		if addresses, externals := keep(n.Addresses, false), keep(n.ExternalIPs, true); len(refused) > 0 {
			n.Addresses, n.ExternalIPs = addresses, externals
			text := refused[0]
			if more := len(refused) - 1; more > 0 {
				text += fmt.Sprintf(" (and %d more of its addresses are refused)", more)
			}
			problems = append(problems, ObjectProblem{Kind: KindNode, Key: n.Key(), UID: n.Name, Text: text})
		}
	}
	return nodes, problems
}

// serviceAddress is the use of an address by a Service.
type serviceAddress struct {
	clusterIP bool
	what      string
}

// taken are the addresses of Nodes that Services have as well.
func (v *Vetter) taken(s *Snapshot) map[netip.Addr]serviceAddress {
	taken := map[netip.Addr]serviceAddress{}
	for _, of := range s.Services {
		for _, a := range of.LoadBalancerIPs {
			if v.claimed[a] && taken[a].what == "" {
				taken[a] = serviceAddress{false, "it is the load balancer's address of Service " + of.Key().String()}
			}
		}
		for _, a := range of.ClusterIPs {
			if v.claimed[a] && !taken[a].clusterIP {
				taken[a] = serviceAddress{true, "it is the cluster IP of Service " + of.Key().String()}
			}
		}
	}
	return taken
}

// claimed are the addresses of nodes.
func claimed(nodes []Node) map[netip.Addr]bool {
	claimed := make(map[netip.Addr]bool, len(nodes))
	for i := range nodes {
		for _, a := range slices.Concat(nodes[i].Addresses, nodes[i].ExternalIPs) {
			claimed[a] = true
		}
	}
	return claimed
}

// nodeRange is a pod range of a node.
type nodeRange struct {
	netip.Prefix
	node string
}

// sortedRanges gives the pod ranges of all nodes, sorted.
func sortedRanges(nodes []Node) []nodeRange {
	all := make([]nodeRange, 0, len(nodes))
	for i := range nodes {
		for _, p := range nodes[i].PodCIDRs {
			all = append(all, nodeRange{p, nodes[i].Name})
		}
	}
	slices.SortFunc(all, func(a, b nodeRange) int { return a.Addr().Compare(b.Addr()) })
	return all
}

// inRange names the pod range that an address is in; empty if there is none.
func (v *Vetter) inRange(a netip.Addr) string {
	at, found := slices.BinarySearchFunc(v.ranges, a, func(r nodeRange, a netip.Addr) int { return r.Addr().Compare(a) })
	if !found {
		at-- // the last range that begins before the address
	}
	if at < 0 || !v.ranges[at].Contains(a) {
		return ""
	}
	return fmt.Sprintf("it is in %s, the pods' range of Node %s", v.ranges[at].Prefix, v.ranges[at].node)
}

// notPublic are networks that are not routed on the internet (RFC 6890) beside the private ones: shared,
// documentation, benchmarks.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("2001:db8::/32"),
}

func isPublic(a netip.Addr) bool {
	return !a.IsPrivate() && !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

// publicSelf reports for each family (true: IPv4) whether this node's own address is public.
func (v *Vetter) publicSelf(s *Snapshot) map[bool]bool {
	public := map[bool]bool{}
	own, _ := s.Node(v.Self)
	for _, a := range own.Addresses {
		if _, known := public[a.Is4()]; !known {
			public[a.Is4()] = isPublic(a)
		}
	}
	return public
}

// believable says why an address cannot be a node's. Without Networks a public address is a node's only if it is the
// first of its family and this node's own is public, too. An ExternalIP is usually public, and only this node uses
// its own.
func (v *Vetter) believable(a netip.Addr, first, external, publicSelf bool) string {
	switch {
	case a.IsLinkLocalUnicast() || a.IsLoopback() || a.IsMulticast() || a.IsUnspecified():
		return "it is not an address at which others reach a node"
	case external:
	case len(v.Networks) > 0:
		if !slices.ContainsFunc(v.Networks, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return "it is not in the networks of --node-cidrs"
		}
	case isPublic(a) && !first:
		return "it is public and not the first of its family (if it is the node's, name its network in --node-cidrs)"
	case isPublic(a) && !publicSelf:
		return "it is public, and this cluster's nodes have private addresses (if it is the node's, name its network in --node-cidrs)"
	}
	return ""
}
