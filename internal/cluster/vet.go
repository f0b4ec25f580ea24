package cluster

import (
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
	ranges   nodeRanges
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
	nodes, copied := s.Nodes, false
	if nodes == nil {
		nodes = []Node{}
	}
	var problems []ObjectProblem
	before := map[bool]bool{} // by family, of this node
	for i := range s.Nodes {
		n := &s.Nodes[i]
		clear(before)
		why := func(a netip.Addr, first, external bool) string {
			if reason := v.believable(a, first, external, public[a.Is4()]); reason != "" {
				return reason
			}
			if reason := v.ranges.why(a); reason != "" {
				return reason
			}
			if of, found := taken[a]; found && (of.clusterIP || !first) {
				return of.what
			}
			return ""
		}
		var refused []string
		keep := func(all []netip.Addr, external bool) []netip.Addr {
			isWrong := func(a netip.Addr) bool {
				first := !external && !before[a.Is4()]
				before[a.Is4()] = true
				reason := why(a, first, external)
				if reason != "" {
					refused = append(refused, fmt.Sprintf("Node %s: address %s in its status is refused: %s", n.Name, a, reason))
				}
				return reason != ""
			}
			at := slices.IndexFunc(all, isWrong)
			if at < 0 {
				return all // the common case
			}
			return append(slices.Clone(all[:at]), slices.DeleteFunc(slices.Clone(all[at+1:]), isWrong)...)
		}
		addresses, externals := keep(n.Addresses, false), keep(n.ExternalIPs, true)
		if len(refused) == 0 {
			continue
		}
		if !copied {
			nodes, copied = slices.Clone(s.Nodes), true
		}
		nodes[i].Addresses, nodes[i].ExternalIPs = addresses, externals
		text := refused[0]
		if more := len(refused) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d more of its addresses are refused)", more)
		}
		problems = append(problems, ObjectProblem{Kind: KindNode, Key: n.Key(), UID: n.Name, Text: text})
	}
	return nodes, problems
}

// serviceAddress is the use of an address by a Service.
type serviceAddress struct {
	clusterIP bool
	what      string
}

func (a serviceAddress) known() bool { return a.what != "" }

// taken are the addresses of Nodes that Services have as well.
func (v *Vetter) taken(s *Snapshot) map[netip.Addr]serviceAddress {
	taken := map[netip.Addr]serviceAddress{}
	for _, of := range s.Services {
		for _, a := range of.LoadBalancerIPs {
			if v.claimed[a] && !taken[a].known() {
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
		for _, a := range nodes[i].Addresses {
			claimed[a] = true
		}
		for _, a := range nodes[i].ExternalIPs {
			claimed[a] = true
		}
	}
	return claimed
}

// nodeRanges are the pod ranges of all nodes, sorted.
type nodeRanges []struct {
	netip.Prefix
	node string
}

func sortedRanges(nodes []Node) nodeRanges {
	all := make(nodeRanges, 0, len(nodes))
	for i := range nodes {
		for _, p := range nodes[i].PodCIDRs {
			all = append(all, struct {
				netip.Prefix
				node string
			}{p, nodes[i].Name})
		}
	}
	slices.SortFunc(all, func(a, b struct {
		netip.Prefix
		node string
	}) int {
		return a.Addr().Compare(b.Addr())
	})
	return all
}

// why names the pod range that an address is in; empty if there is none.
func (r nodeRanges) why(a netip.Addr) string {
	after, _ := slices.BinarySearchFunc(r, a, func(p struct {
		netip.Prefix
		node string
	}, a netip.Addr) int {
		if p.Addr().Compare(a) <= 0 {
			return -1
		}
		return 1
	})
	if after > 0 && r[after-1].Contains(a) {
		return fmt.Sprintf("it is in %s, the pods' range of Node %s", r[after-1].Prefix, r[after-1].node)
	}
	return ""
}

// notPublic are networks that are not routed on the internet (RFC 6890): private, shared, documentation, benchmarks,
// unique local.
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("2001:db8::/32"),
}

func isPublic(a netip.Addr) bool {
	return !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
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
