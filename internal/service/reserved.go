package service

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// special are addresses that never reach a Service from the wire, or that belong to every host: "this network", loopback,
// link-local (cloud providers serve the node's credentials at 169.254.169.254), multicast, broadcast (RFC 6890; RFC 4291, 2.4).
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

// AllowsExternalIP reports whether a Service may have an address in its externalIPs.
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

// specialReason says why no Service may have an address; empty if one may.
func specialReason(addr netip.Addr) string {
	for _, p := range special {
		if p.Contains(addr) {
			return "it is " + p.what
		}
	}
	return ""
}

// reject says why a Service must not answer at an external address, by the node's configuration; empty if it may.
func (n *NodeConfig) reject(addr netip.Addr, kind Kind) string {
	if kind == KindExternalIP && !n.AllowsExternalIP(addr) {
		return "it is not in the networks of --external-ips"
	}
	if why := specialReason(addr); why != "" {
		return why
	}
	for _, server := range n.APIServer {
		if server.Addr() == addr {
			return "it is the address of the API server"
		}
	}
	return ""
}

// rejectLocal says what on this node has an address; empty if nothing has.
func (n *NodeConfig) rejectLocal(addr netip.Addr) string {
	switch {
	case slices.Contains(n.HostPortAddresses, addr):
		return "it is an address of this node"
	case slices.Contains(n.Pods, addr):
		return "it is the address of a pod"
	}
	return ""
}

// reservedForAPIServer says why only the API server's own Service may have a frontend; empty if others may too. The agent's own
// sockets are translated as well: a Service at this address would receive the agent's connection and control what the agent
// believes about the cluster.
func (n *NodeConfig) reservedForAPIServer(f Frontend, by cluster.Key) string {
	if f.Protocol == cluster.TCP && by != kubernetesService && slices.Contains(n.APIServer, netip.AddrPortFrom(f.Address, f.Port)) {
		return fmt.Sprintf("the agent reaches the API server at %s", netip.AddrPortFrom(f.Address, f.Port))
	}
	return ""
}

// reserved are the addresses of the cluster that no external address of a Service may be: those of nodes and Services, and the
// pod ranges.
type reserved struct {
	nodes      map[netip.Addr]string        // by name
	ranges     []podRange                   // sorted
	clusterIPs map[netip.Addr][]cluster.Key // sorted; an API server allocates each to one Service
	// changed are the cluster IPs that were added or removed since the last pass.
	changed map[netip.Addr]bool
	pools   []*cluster.IPPool
	ofPools *netipx.IPSet // the ranges of all pools
}

type podRange struct {
	netip.Prefix
	node string
}

func newReserved() reserved {
	return reserved{clusterIPs: map[netip.Addr][]cluster.Key{}, changed: map[netip.Addr]bool{}, ofPools: &netipx.IPSet{}}
}

// setPools replaces the IPPools and reports whether their ranges changed.
func (g *reserved) setPools(pools []*cluster.IPPool) (changed bool) {
	var b netipx.IPSetBuilder
	for _, p := range pools {
		for _, r := range p.Ranges {
			b.AddRange(r)
		}
	}
	before := g.ofPools
	ranges, _ := b.IPSet() // the ranges were checked when they were read
	g.pools, g.ofPools = pools, ranges
	return !g.ofPools.Equal(before)
}

// rejectPool names the IPPool that gives an address to pods; empty if there is none. Tenants choose the externalIPs of their Services.
func (g *reserved) rejectPool(addr netip.Addr) string {
	if !g.ofPools.Contains(addr) {
		return ""
	}
	at := slices.IndexFunc(g.pools, func(p *cluster.IPPool) bool {
		return slices.ContainsFunc(p.Ranges, func(r netipx.IPRange) bool { return r.Contains(addr) })
	})
	return fmt.Sprintf("it is in the ranges of IPPool %s (spec.exclude of the pool can leave it out)", g.pools[at].Name)
}

// setNodes replaces the nodes and reports whether anything changed. If several nodes have one address, the first counts.
func (g *reserved) setNodes(nodes []cluster.Node) (changed bool) {
	addresses, ranges := g.nodes, g.ranges
	g.nodes, g.ranges = make(map[netip.Addr]string, len(nodes)), make([]podRange, 0, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		for _, all := range [][]netip.Addr{n.Addresses, n.ExternalIPs} {
			for _, a := range all {
				if _, taken := g.nodes[a]; !taken {
					g.nodes[a] = n.Name
				}
			}
		}
		for _, p := range n.PodCIDRs {
			g.ranges = append(g.ranges, podRange{p, n.Name})
		}
	}
	slices.SortFunc(g.ranges, podRange.compare)
	return addresses == nil || !maps.Equal(addresses, g.nodes) || !slices.Equal(ranges, g.ranges)
}

func (r podRange) compare(other podRange) int {
	return cmp.Or(r.Prefix.Compare(other.Prefix), cmp.Compare(r.node, other.node))
}

// updateService replaces the cluster IPs of a Service.
func (g *reserved) updateService(before, after *cluster.Service) {
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

// affects reports whether a change affects the external addresses of a Service.
func (g *reserved) affects(s *cluster.Service) bool {
	isOne := func(a netip.Addr) bool { return g.changed[a] }
	return slices.ContainsFunc(s.LoadBalancerIPs, isOne) || slices.ContainsFunc(s.ExternalIPs, isOne)
}

// reject says what in the cluster has an address; empty if nothing has.
func (g *reserved) reject(addr netip.Addr) string {
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
