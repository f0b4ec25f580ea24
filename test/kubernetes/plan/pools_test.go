package plan

import (
	"slices"
	"testing"
)

// TestPoolsAreOfTheLink checks that pods have addresses of the nodes' link, which no machine and no other pool has.
func TestPoolsAreOfTheLink(t *testing.T) {
	for _, pools := range AllPools {
		for _, family := range Families {
			c := New(Options{Nodes: MaxNodes, Pools: pools, Family: family}.Defaults())
			all := c.Pools()
			if (len(all) == 0) != (pools == PoolsNone) {
				t.Errorf("pools %s: %v", pools, all)
			}
			for i, p := range all {
				if len(p.Subnets) != len(c.families("", "")) || len(p.Ranges) != len(p.Subnets) {
					t.Fatalf("pool %s, %s: subnets %v, ranges %v", p.Name, family, p.Subnets, p.Ranges)
				}
				for f, r := range p.Ranges {
					if !p.Subnets[f].Contains(r.From()) || !p.Subnets[f].Contains(r.To()) || !p.Subnets[f].Contains(c.Nodes[0].Addresses()[f]) {
						t.Errorf("pool %s: %s and node %s are not in %s", p.Name, r, c.Nodes[0].Addresses()[f], p.Subnets[f])
					}
					for _, m := range c.Machines() {
						if slices.ContainsFunc(m.Addresses(), r.Contains) {
							t.Errorf("pool %s has an address of %s", p.Name, m.Name)
						}
					}
					for _, other := range all[i+1:] {
						if r.Overlaps(other.Ranges[f]) {
							t.Errorf("pools %s and %s overlap", p.Name, other.Name)
						}
					}
				}
			}
		}
	}
}

// TestPoolsNeedOneLink: in the routed topology nodes are in two subnets, and other networks have no pools.
func TestPoolsNeedOneLink(t *testing.T) {
	for _, o := range []Options{{Topology: TopologyRouted}, {Network: NetworkBridge}, {Network: NetworkNone}} {
		if err := o.Defaults().Validate(); err != nil {
			t.Fatal(err)
		}
		o.Pools = PoolsMacvlan
		if err := o.Defaults().Validate(); err == nil {
			t.Errorf("accepted: %+v", o)
		}
	}
}
