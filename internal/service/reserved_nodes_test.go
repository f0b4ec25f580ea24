package service

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// The addresses and ranges are those of the current nodes, also where several have one address.
func TestReservedHasNodes(t *testing.T) {
	node := func(name, address, external, pods string) cluster.Node {
		return cluster.Node{
			Name: name, Addresses: []netip.Addr{addr(address)}, ExternalIPs: []netip.Addr{addr(external)},
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)},
		}
	}
	n1, n2 := node("n1", "192.0.2.1", "203.0.113.1", "10.1.1.0/24"), node("n2", "192.0.2.2", "192.0.2.1", "10.1.2.0/24")
	zone := n1
	zone.Zone = "z"
	g := newReserved()
	for _, c := range []struct {
		nodes   []cluster.Node
		changed bool
		want    string
	}{
		{nil, true, "map[] []"},
		{[]cluster.Node{n1}, true, "map[192.0.2.1:n1 203.0.113.1:n1] [10.1.1.0/24 n1]"},
		{[]cluster.Node{zone}, false, "map[192.0.2.1:n1 203.0.113.1:n1] [10.1.1.0/24 n1]"},
		{[]cluster.Node{n1, n2}, true, "map[192.0.2.1:n1 192.0.2.2:n2 203.0.113.1:n1] [10.1.1.0/24 n1 10.1.2.0/24 n2]"},
		{[]cluster.Node{n2}, true, "map[192.0.2.1:n2 192.0.2.2:n2] [10.1.2.0/24 n2]"},
	} {
		nodes, ranges := maps.Clone(g.nodes), slices.Clone(g.ranges)
		if changed := g.setNodes(c.nodes); changed != c.changed {
			t.Errorf("%v %v becomes %v: changed is %t", nodes, ranges, c.want, changed)
		}
		names := map[string]string{}
		for a, name := range g.nodes {
			names[a.String()] = name
		}
		pods := []string{}
		for _, r := range g.ranges {
			pods = append(pods, r.Prefix.String()+" "+r.node)
		}
		if got := fmt.Sprint(names, " ", pods); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
