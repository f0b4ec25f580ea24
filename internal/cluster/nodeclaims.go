package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// nodeClaims decides conflicts between Nodes about addresses and pod ranges.
type nodeClaims struct {
	nodes    []*NodeObject
	problems []ObjectProblem
}

// ResolveNodes decides conflicts between the Nodes of an API server from the current objects only, so that all nodes
// decide alike. It gives each Node with the addresses and ranges that it keeps, in the given order, and the conflicts.
//
// Of Nodes with the same address, the one with fewest addresses of its family before it keeps it, so that no Node
// takes another's by appending it. Then the one that is Ready wins, then the newer one, as when a machine was
// replaced, then the first by name. Of Nodes with overlapping pod ranges the older one keeps its range: ranges are
// never allocated twice. A node that loses all its pod ranges is left out: nothing may be sent there.
func ResolveNodes(all []*NodeObject) (nodes []Node, conflicts []ObjectProblem) {
	c := nodeClaims{nodes: all}
	addresses, ranges := c.addresses(), c.ranges()
	nodes = make([]Node, 0, len(all))
	for i, o := range all {
		n := o.Node
		if n.Lost = addresses[i]; n.Lost != nil {
			n.Addresses = slices.DeleteFunc(slices.Clone(n.Addresses), func(a netip.Addr) bool { return slices.Contains(n.Lost, a) })
		}
		if lost := ranges[i]; lost != nil {
			n.PodCIDRs = slices.DeleteFunc(slices.Clone(n.PodCIDRs), func(p netip.Prefix) bool { return slices.Contains(lost, p) })
			if len(n.PodCIDRs) == 0 {
				continue
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, c.problems
}

// addressClaim is an address of a node, with how many addresses of its family precede it.
type addressClaim struct {
	address     netip.Addr
	node, field int
	before      int
}

// addresses gives the addresses that nodes lose, by the index of the node.
func (c *nodeClaims) addresses() map[int][]netip.Addr {
	var all []addressClaim
	for i, n := range c.nodes {
		before := map[bool]int{}
		for j, a := range n.Addresses {
			all = append(all, addressClaim{a, i, j, before[a.Is4()]})
			before[a.Is4()]++
		}
	}
	slices.SortFunc(all, func(x, y addressClaim) int {
		if order := x.address.Compare(y.address); order != 0 {
			return order // of almost all
		}
		a, b := c.nodes[x.node], c.nodes[y.node]
		return cmp.Or(cmp.Compare(x.before, y.before), readyFirst(a, b), b.Created.Compare(a.Created), cmp.Compare(a.Name, b.Name))
	})
	lost := map[int][]netip.Addr{}
	for i := 1; i < len(all); i++ {
		if all[i].address != all[i-1].address {
			continue
		}
		winner := i - 1
		for winner > 0 && all[winner-1].address == all[i].address {
			winner--
		}
		loser := all[i]
		if loser.node == all[winner].node {
			continue // twice in one object
		}
		lost[loser.node] = append(lost[loser.node], loser.address)
		c.refuse(loser.node, c.nodes[loser.node].addressField[loser.field], "address %s is also that of Node %s", loser.address, c.nodes[all[winner].node].Name)
	}
	return lost
}

// rangeClaim is a pod range of a node.
type rangeClaim struct {
	netip.Prefix
	node, field int
}

// ranges gives the pod ranges that nodes lose, by the index of the node. It compares ages only where ranges overlap;
// most clusters have none.
func (c *nodeClaims) ranges() map[int][]netip.Prefix {
	var all []rangeClaim
	for i, n := range c.nodes {
		for j, p := range n.PodCIDRs {
			all = append(all, rangeClaim{p, i, j})
		}
	}
	// Sorted by address, wider first, any overlap shows between a range and the widest one before it.
	slices.SortFunc(all, func(a, b rangeClaim) int { return a.Compare(b.Prefix) })
	lost := map[int][]netip.Prefix{}
	for len(all) > 0 {
		end := 1
		for end < len(all) && all[0].Contains(all[end].Addr()) {
			end++
		}
		if end > 1 {
			c.between(slices.Clone(all[:end]), lost)
		}
		all = all[end:]
	}
	return lost
}

// between decides among ranges that all lie within the first.
func (c *nodeClaims) between(group []rangeClaim, lost map[int][]netip.Prefix) {
	slices.SortFunc(group, func(x, y rangeClaim) int {
		a, b := c.nodes[x.node], c.nodes[y.node]
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	var kept []rangeClaim // sorted by address; none overlaps another
	for _, r := range group {
		at, _ := slices.BinarySearchFunc(kept, r, func(a, b rangeClaim) int { return a.Addr().Compare(b.Addr()) })
		switch {
		case at < len(kept) && kept[at].Overlaps(r.Prefix):
		case at > 0 && kept[at-1].Overlaps(r.Prefix):
			at--
		default:
			kept = slices.Insert(kept, at, r)
			continue
		}
		lost[r.node] = append(lost[r.node], r.Prefix)
		c.refuse(r.node, c.nodes[r.node].cidrField[r.field], "pod range overlaps (%s and %s) with that of Node %s", r.Prefix, kept[at].Prefix, c.nodes[kept[at].node].Name)
	}
}

func readyFirst(a, b *NodeObject) int {
	switch {
	case a.Ready == b.Ready:
		return 0
	case a.Ready:
		return -1
	}
	return 1
}

func (c *nodeClaims) refuse(node int, field, format string, args ...any) {
	n := c.nodes[node]
	text := fmt.Sprintf("Node %s: %s: ", n.Name, field) + fmt.Sprintf(format, args...)
	c.problems = append(c.problems, ObjectProblem{Kind: KindNode, Key: n.Key(), UID: n.Name, Text: text})
}
