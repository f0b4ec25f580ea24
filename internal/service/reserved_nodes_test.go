package service

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// The state after nodes were added, removed and changed is that of the current nodes, also where several have one
// address.
func TestGuardTakesNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	there := map[string]cluster.Node{}
	g := newReserved()
	g.updateNodes(nil, []cluster.Node{})
	before, shared := []cluster.Node{}, 0
	for step := range 1000 {
		name := fmt.Sprintf("n%d", random.IntN(8))
		if delete(there, name); random.IntN(3) > 0 {
			there[name] = cluster.Node{
				Name: name, Zone: fmt.Sprint(random.IntN(2)),
				Addresses:   []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(random.IntN(100))})},
				ExternalIPs: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(random.IntN(100))})},
				PodCIDRs:    []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, byte(random.IntN(100)), 0}), 24)},
			}
		}
		nodes := slices.SortedFunc(maps.Values(there), func(a, b cluster.Node) int { return strings.Compare(a.Name, b.Name) })
		was := reserved{nodes: maps.Clone(g.nodes), ranges: slices.Clone(g.ranges)}
		changed := g.updateNodes(before, nodes)
		want := newReserved()
		want.setNodes(nodes)
		if !maps.Equal(g.nodes, want.nodes) || !slices.Equal(g.ranges, want.ranges) || g.shared != want.shared {
			t.Fatalf("step %d: addresses %v, want %v; ranges %v, want %v", step, g.nodes, want.nodes, g.ranges, want.ranges)
		}
		if differ := !maps.Equal(g.nodes, was.nodes) || !slices.Equal(g.ranges, was.ranges); differ && !changed {
			t.Fatalf("step %d: the change is not reported", step)
		}
		if g.shared {
			shared++
		}
		before = nodes
	}
	if shared == 0 || shared == 1000 {
		t.Errorf("in %d of 1000 steps nodes share an address: the test covers too little", shared)
	}
}
