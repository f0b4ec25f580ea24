package cluster

import (
	"net/netip"
	"slices"
)

// claimCounts counts the addresses and ranges of Nodes. When a Node changes it shows whether any two Nodes conflict,
// without visiting all.
type claimCounts struct {
	// addresses count the Nodes of each address; shared is how many addresses have several.
	addresses map[netip.Addr]int
	shared    int
	// ranges are sorted by address, wider first: if any ranges overlap, some two neighbours do. overlaps is the
	// number of overlapping neighbours.
	ranges   []netip.Prefix
	overlaps int
}

func (c *claimCounts) contested() bool { return c.shared+c.overlaps > 0 }

func (c *claimCounts) add(n *nodeObject) {
	if c.addresses == nil {
		c.addresses = map[netip.Addr]int{}
	}
	for i, a := range n.Addresses {
		if slices.Contains(n.Addresses[:i], a) {
			continue // twice in one object
		}
		if c.addresses[a]++; c.addresses[a] == 2 {
			c.shared++
		}
	}
	for _, p := range n.PodCIDRs {
		at, _ := slices.BinarySearchFunc(c.ranges, p, netip.Prefix.Compare)
		c.overlaps += c.overlapsAt(at, &p) - c.overlapsAt(at, nil)
		c.ranges = slices.Insert(c.ranges, at, p)
	}
}

func (c *claimCounts) remove(n *nodeObject) {
	for i, a := range n.Addresses {
		if slices.Contains(n.Addresses[:i], a) {
			continue
		}
		switch c.addresses[a]--; c.addresses[a] {
		case 1:
			c.shared--
		case 0:
			delete(c.addresses, a)
		}
	}
	for _, p := range n.PodCIDRs {
		at, _ := slices.BinarySearchFunc(c.ranges, p, netip.Prefix.Compare)
		c.ranges = slices.Delete(c.ranges, at, at+1)
		c.overlaps -= c.overlapsAt(at, &p) - c.overlapsAt(at, nil)
	}
}

// overlapsAt counts overlapping neighbours before and after an index, with a range inserted there or without.
func (c *claimCounts) overlapsAt(at int, with *netip.Prefix) (count int) {
	around := make([]netip.Prefix, 0, 3)
	if at > 0 {
		around = append(around, c.ranges[at-1])
	}
	if with != nil {
		around = append(around, *with)
	}
	if at < len(c.ranges) {
		around = append(around, c.ranges[at])
	}
	for i := 1; i < len(around); i++ {
		if around[i-1].Overlaps(around[i]) {
			count++
		}
	}
	return count
}
