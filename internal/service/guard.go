package service

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// special are addresses that no wire brings to a Service, or that are everybody's own: "this network", loopback, link-local (cloud providers
// serve the node's credentials at 169.254.169.254), multicast, broadcast (RFC 6890; RFC 4291, 2.4).
var special = []struct {
	netip.Prefix
	what string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "not an address of a host"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, as the node's metadata service is"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("::/127"), "a loopback address or none"},
	{netip.MustParsePrefix("::ffff:0:0/96"), "IPv4 written as IPv6"},
	{netip.MustParsePrefix("fe80::/10"), "link-local, as the node's metadata service is"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

// kubernetesService is the Service of the API server itself.
var kubernetesService = cluster.Key{Namespace: "default", Name: "kubernetes"}

// AllowsExternalIP tells whether a Service may have an address in its externalIPs.
func (n *NodeConfig) AllowsExternalIP(addr netip.Addr) bool {
	return slices.ContainsFunc(n.ExternalIPs, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func (n *NodeConfig) allowedExternalIPs(s *cluster.Service) (count int) {
	if len(n.ExternalIPs) == 0 {
		return 0
	}
	for _, addr := range s.ExternalIPs {
		if n.AllowsExternalIP(addr) {
			count++
		}
	}
	return count
}

// specialWhy says why an address is nobody's to take; empty if it is.
func specialWhy(addr netip.Addr) string {
	for _, p := range special {
		if p.Contains(addr) {
			return "it is " + p.what
		}
	}
	return ""
}

// refuse says why a Service does not answer at an external address, by what the node's configuration tells; empty if it does.
func (n *NodeConfig) refuse(addr netip.Addr, kind Kind) string {
	if kind == KindExternalIP && !n.AllowsExternalIP(addr) {
		return "it is not in the networks of --external-ips"
	}
	if why := specialWhy(addr); why != "" {
		return why
	}
	for _, server := range n.APIServer {
		if server.Addr() == addr {
			return "it is the address of the API server"
		}
	}
	return ""
}

// refuseOwn says what on this node has an address; empty if nothing has.
func (n *NodeConfig) refuseOwn(addr netip.Addr) string {
	switch {
	case slices.Contains(n.HostPortAddresses, addr):
		return "it is an address of this node"
	case slices.Contains(n.Pods, addr):
		return "it is the address of a pod"
	}
	return ""
}

// takesAPIServer says why nobody but the API server's own Service has a frontend; empty if there is no reason. The agent's own sockets are
// among those that are translated: with its connection somebody would have the agent's word for what the cluster is.
func (n *NodeConfig) takesAPIServer(f Frontend, by cluster.Key) string {
	if f.Protocol == cluster.TCP && by != kubernetesService && slices.Contains(n.APIServer, netip.AddrPortFrom(f.Address, f.Port)) {
		return fmt.Sprintf("the agent reaches the API server at %s", netip.AddrPortFrom(f.Address, f.Port))
	}
	return ""
}

// guard knows the addresses of the cluster that no external address of a Service may be: those of nodes and of Services, and the ranges of pods.
type guard struct {
	nodes      map[netip.Addr]string        // by name
	shared     bool                         // several nodes have one of these
	ranges     []podRange                   // sorted
	clusterIPs map[netip.Addr][]cluster.Key // sorted; an API server gives each to one Service
	// changed are the cluster IPs that came or went since the last pass.
	changed map[netip.Addr]bool
}

type podRange struct {
	netip.Prefix
	node string
}

func newGuard() guard {
	return guard{clusterIPs: map[netip.Addr][]cluster.Key{}, changed: map[netip.Addr]bool{}}
}

// takeNodes takes the nodes of a snapshot, before which there were others, and tells whether something is different. Both are sorted by name.
func (g *guard) takeNodes(before, nodes []cluster.Node) (changed bool) {
	if g.nodes == nil || g.shared {
		return g.takeAllNodes(nodes)
	}
	fits := true
	cluster.DifferentNodes(before, nodes, func(before, after *cluster.Node) {
		if before != nil && after != nil && slices.Equal(before.Addresses, after.Addresses) && slices.Equal(before.ExternalIPs, after.ExternalIPs) && slices.Equal(before.PodCIDRs, after.PodCIDRs) {
			return
		}
		changed = true
		if before != nil {
			g.dropNode(before)
		}
		if after != nil {
			fits = g.addAddresses(after) && fits
			g.addRanges(after)
		}
	})
	if !fits {
		g.takeAllNodes(nodes)
	}
	return changed
}

// takeAllNodes begins anew: where several nodes have one address, the first by name counts.
func (g *guard) takeAllNodes(nodes []cluster.Node) (changed bool) {
	addresses, ranges := g.nodes, g.ranges
	g.nodes, g.ranges, g.shared = make(map[netip.Addr]string, len(nodes)), make([]podRange, 0, len(nodes)), false
	for i := range nodes {
		g.shared = !g.addAddresses(&nodes[i]) || g.shared
		for _, p := range nodes[i].PodCIDRs {
			g.ranges = append(g.ranges, podRange{p, nodes[i].Name})
		}
	}
	slices.SortFunc(g.ranges, podRange.compare)
	return addresses == nil || !maps.Equal(addresses, g.nodes) || !slices.Equal(ranges, g.ranges)
}

// addAddresses adds those of a node. It returns false if another has one of them.
func (g *guard) addAddresses(n *cluster.Node) (alone bool) {
	alone = true
	for _, all := range [][]netip.Addr{n.Addresses, n.ExternalIPs} {
		for _, a := range all {
			if of, taken := g.nodes[a]; !taken {
				g.nodes[a] = n.Name
			} else if of != n.Name {
				alone = false
			}
		}
	}
	return alone
}

func (g *guard) addRanges(n *cluster.Node) {
	for _, p := range n.PodCIDRs {
		r := podRange{p, n.Name}
		at, _ := slices.BinarySearchFunc(g.ranges, r, podRange.compare)
		g.ranges = slices.Insert(g.ranges, at, r)
	}
}

// dropNode takes away what a node has that shares no address.
func (g *guard) dropNode(n *cluster.Node) {
	for _, all := range [][]netip.Addr{n.Addresses, n.ExternalIPs} {
		for _, a := range all {
			delete(g.nodes, a)
		}
	}
	for _, p := range n.PodCIDRs {
		if at, found := slices.BinarySearchFunc(g.ranges, podRange{p, n.Name}, podRange.compare); found {
			g.ranges = slices.Delete(g.ranges, at, at+1)
		}
	}
}

func (r podRange) compare(other podRange) int {
	return cmp.Or(r.Addr().Compare(other.Addr()), cmp.Compare(r.Bits(), other.Bits()), cmp.Compare(r.node, other.node))
}

// takeService takes the cluster IPs of a Service.
func (g *guard) takeService(before, after *cluster.Service) {
	if before != nil && after != nil && slices.Equal(before.ClusterIPs, after.ClusterIPs) {
		return
	}
	if before != nil {
		for _, a := range before.ClusterIPs {
			of := g.clusterIPs[a]
			if at, found := slices.BinarySearchFunc(of, before.Key(), cluster.Key.Compare); found {
				of = slices.Delete(slices.Clone(of), at, at+1)
			}
			g.clusterIPs[a] = of
			if len(of) == 0 {
				delete(g.clusterIPs, a)
			}
			g.changed[a] = true
		}
	}
	if after != nil {
		for _, a := range after.ClusterIPs {
			of := g.clusterIPs[a]
			if at, found := slices.BinarySearchFunc(of, after.Key(), cluster.Key.Compare); !found {
				g.clusterIPs[a] = slices.Insert(slices.Clone(of), at, after.Key())
			}
			g.changed[a] = true
		}
	}
}

// concerns tells whether something has changed for the external addresses of a Service.
func (g *guard) concerns(s *cluster.Service) bool {
	isOne := func(a netip.Addr) bool { return g.changed[a] }
	return slices.ContainsFunc(s.LoadBalancerIPs, isOne) || slices.ContainsFunc(s.ExternalIPs, isOne)
}

// refuse says whose an address is that a Service would take from it; empty if it is nobody's.
func (g *guard) refuse(addr netip.Addr) string {
	if node, found := g.nodes[addr]; found {
		return "it is an address of node " + node
	}
	if of := g.clusterIPs[addr]; len(of) > 0 {
		return "it is the cluster IP of Service " + of[0].String()
	}
	after, _ := slices.BinarySearchFunc(g.ranges, addr, func(p podRange, addr netip.Addr) int {
		if p.Addr().Compare(addr) <= 0 {
			return -1
		}
		return 1
	})
	if after > 0 && g.ranges[after-1].Contains(addr) {
		return fmt.Sprintf("it is in %s, the pods' range of node %s", g.ranges[after-1].Prefix, g.ranges[after-1].node)
	}
	return ""
}
