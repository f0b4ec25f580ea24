package node

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/device/netdev"
)

// PoolRoute is the datapath's route to an address of an IPPool that a pod of this node has.
var PoolRoute = fwd.Route{Kind: fwd.RouteLocal}

// WithPoolAddresses gives other nodes the addresses of IPPools that their pods have, as ranges of one address each. The first address of
// a family of a Node stays that node's. An additional one, which any kubelet may append to its Node, gets no route if a pod has it, too: it
// is left to the physical network, so that neither a Node nor a claim takes it from the other.
func WithPoolAddresses(nodes []cluster.Node, self string, addresses map[string][]netip.Addr) []cluster.Node {
	if len(addresses) == 0 {
		return nodes
	}
	claimed := map[netip.Addr]bool{}
	for _, all := range addresses {
		for _, a := range all {
			claimed[a] = true
		}
	}
	ofNodes, nodes := map[netip.Addr]bool{}, slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		for _, a := range n.Addresses {
			ofNodes[a] = true
		}
		if n.Name != self && slices.ContainsFunc(n.Addresses, func(a netip.Addr) bool { return claimed[a] }) {
			n.Addresses = withoutAdditional(n.Addresses, claimed)
		}
	}
	for i := range nodes {
		n := &nodes[i]
		if n.Name == self || len(addresses[n.Name]) == 0 {
			continue
		}
		ranges := slices.Clone(n.PodCIDRs)
		for _, a := range addresses[n.Name] {
			if !ofNodes[a] {
				ranges = append(ranges, HostPrefix(a))
			}
		}
		slices.SortFunc(ranges[len(n.PodCIDRs):], netip.Prefix.Compare)
		n.PodCIDRs = ranges
	}
	return nodes
}

// withoutAdditional gives a node's addresses without those that are claimed and not the first of their family.
func withoutAdditional(addresses []netip.Addr, claimed map[netip.Addr]bool) (kept []netip.Addr) {
	before := map[bool]bool{} // by family
	for _, a := range addresses {
		if !claimed[a] || !before[a.Is4()] {
			kept = append(kept, a)
		}
		before[a.Is4()] = true
	}
	return kept
}

// rangesOf are a node's ranges of pod addresses, without single addresses.
func rangesOf(n cluster.Node) []netip.Prefix {
	if !slices.ContainsFunc(n.PodCIDRs, netip.Prefix.IsSingleIP) {
		return n.PodCIDRs
	}
	return slices.DeleteFunc(slices.Clone(n.PodCIDRs), netip.Prefix.IsSingleIP)
}

// OfDeletedPools gives the addresses of pods with veth or netkit devices whose IPPool was deleted, or is not known yet.
func OfDeletedPools(endpoints []agentapi.Endpoint, pools []*cluster.IPPool) (all []netip.Addr) {
	for _, e := range endpoints {
		if e.Pool != "" && e.Macvlan == nil && !slices.ContainsFunc(pools, func(p *cluster.IPPool) bool { return p.Name == e.Pool }) {
			all = append(all, e.Addresses...)
		}
	}
	return all
}

// proxyUplink is the uplink of a pod's pool. After the pool was deleted it stays the one on which this node answers for the pod.
func (f Facts) proxyUplink(e agentapi.Endpoint, a netip.Addr) (netdev.Uplink, error) {
	uplinks := f.AllUplinks()
	if device, answers := f.Answers[a]; answers {
		if at := slices.IndexFunc(uplinks, func(u netdev.Uplink) bool { return u.Index == device }); at >= 0 {
			return uplinks[at], nil
		}
	}
	return PoolUplink(f.IPPools, uplinks, f.VLANs, e.Pool)
}

// addProxy makes the node answer for an address of an IPPool on the uplink of the pool.
func (d *Desired) addProxy(e agentapi.Endpoint, a netip.Addr, f Facts) {
	u, err := f.proxyUplink(e, a)
	if err != nil {
		d.PodProblem(e.Pod, "pod %s: %v: other hosts do not reach address %s", e.PodName(), err, a)
		return
	}
	if d.Proxies == nil {
		d.Proxies = map[int][]netip.Addr{}
	}
	d.Proxies[u.Index] = append(d.Proxies[u.Index], a)
}

// PoolUplink gives the uplink of an IPPool: its VLAN device, else the one that the pool names or that has the address which it names, else
// the first one with an address in a subnet of the pool, else the first of uplinks, which leads to the other nodes. A pool that was deleted
// has the latter.
func PoolUplink(pools []*cluster.IPPool, uplinks []netdev.Uplink, vlans VLANs, name string) (netdev.Uplink, error) {
	missing := fmt.Errorf("this node has no uplink of IPPool %s", name)
	if len(uplinks) == 0 {
		return netdev.Uplink{}, missing
	}
	at := slices.IndexFunc(pools, func(p *cluster.IPPool) bool { return p.Name == name })
	if at < 0 {
		return uplinks[0], nil
	}
	pool := pools[at]
	if pool.VLAN != 0 {
		return vlans.uplink(pool)
	}
	for _, u := range uplinks {
		switch {
		case pool.Uplink == "" && slices.ContainsFunc(u.Addresses, func(own netip.Prefix) bool { return slices.ContainsFunc(pool.Subnets, own.Overlaps) }),
			pool.Uplink != "" && pool.Uplink == u.Name:
			return u, nil
		}
		if a, err := netip.ParseAddr(pool.Uplink); err == nil && holds(u, a) {
			return u, nil
		}
	}
	if pool.Uplink != "" {
		return netdev.Uplink{}, missing
	}
	return uplinks[0], nil
}
