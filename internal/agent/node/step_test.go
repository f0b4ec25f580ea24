package node

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/device/route"
)

// someNode is a node on the link or behind a tunnel, of one family or of both, with a range that others may have had
// before.
func someNode(random *rand.Rand, name string, number int) cluster.Node {
	n := cluster.Node{Name: name, Zone: fmt.Sprint(random.IntN(2))}
	if random.IntN(16) > 0 {
		n.WireGuardKey = keyOf(byte(1 + number + 10*random.IntN(2)))
	}
	link := []string{"192.0.2", "198.51.100"}[random.IntN(2)]
	n.Addresses = addrs(fmt.Sprintf("%s.%d", link, 10+number))
	if random.IntN(2) == 0 {
		n.Addresses = append(n.Addresses, addr(fmt.Sprintf("2001:db8::%d", 10+number)))
		n.PodCIDRs = prefixes(fmt.Sprintf("fd00:%d::/64", 10+number))
	}
	if random.IntN(8) > 0 {
		n.PodCIDRs = append(n.PodCIDRs, prefixes(fmt.Sprintf("10.1.%d.0/24", 10+10*random.IntN(2)+number))...)
	}
	return n
}

// A step for nodes that are added, removed and changed gives the routes of a reconciliation, or leaves it to one.
func TestStepToNodes(t *testing.T) {
	for name, config := range map[string]Config{
		"direct":    {Tunnel: TunnelNone},
		"tunnels":   {Tunnel: TunnelVXLAN, TunnelPort: 4789},
		"as needed": {Tunnel: TunnelAuto, TunnelPort: 4789},
		"encrypted": {Tunnel: TunnelAuto, TunnelPort: 4789, Encryption: EncryptionWireGuard, EncryptionStrict: true, WireGuardPort: 28781},
		"plaintext": {Tunnel: TunnelAuto, TunnelPort: 4789, Encryption: EncryptionWireGuard, WireGuardPort: 28781},
		"nested":    {Tunnel: TunnelAuto, TunnelPort: 4789, NonMasquerade: prefixes("10.0.0.0/8")},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(5, 6))
			before := twoNodes()
			before.Config.Tunnel, before.Config.TunnelPort, before.Config.NonMasquerade = config.Tunnel, config.TunnelPort, config.NonMasquerade
			before.Config.Encryption, before.Config.EncryptionStrict, before.Config.WireGuardPort = config.Encryption, config.EncryptionStrict, config.WireGuardPort
			before.Tunnel.Index, before.Encryption.Index = 9, wireguardIndex
			before.Neighbours = nil
			others := map[string]cluster.Node{}
			done := 0
			for range 500 {
				for range 1 + random.IntN(2) {
					number := random.IntN(6)
					name := fmt.Sprintf("n%d", number)
					if delete(others, name); random.IntN(3) > 0 {
						others[name] = someNode(random, name, number)
					}
				}
				nodes := append(slices.Clone(twoNodes().Snapshot.Nodes), slices.Collect(maps.Values(others))...)
				for i := range nodes[:2] {
					nodes[i].WireGuardKey = keyOf(byte(100 + i))
				}
				slices.SortFunc(nodes, func(a, b cluster.Node) int { return strings.Compare(a.Name, b.Name) })
				after := before
				after.Snapshot = &cluster.Snapshot{Nodes: nodes}
				got, want := Desire(before), Desire(after)
				if step, ok := before.StepTo(after, got); ok {
					done++
					got.Take(step)
					got.KernelRoutes = append(routesWithout(got.KernelRoutes, slices.Concat(step.Over, step.Add), func(a, b route.Route) bool { return a.Prefix == b.Prefix && a.Table == b.Table }), step.Add...)
					if !maps.Equal(got.Routes, want.Routes) {
						t.Fatalf("routes are\n%v, want\n%v", got.Routes, want.Routes)
					}
					order := func(a, b route.Route) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
					if g, w := slices.SortedFunc(slices.Values(got.KernelRoutes), order), slices.SortedFunc(slices.Values(want.KernelRoutes), order); !slices.Equal(g, w) {
						t.Fatalf("the kernel's routes are\n%v, want\n%v", g, w)
					}
					if difference := cmp.Diff(want.Nodes, got.Nodes, byValue); difference != "" {
						t.Fatalf("status (-want +got):\n%s", difference)
					}
					if len(config.NonMasquerade) == 0 && step.Nested {
						t.Fatalf("nested: %v", step.Set)
					}
				}
				before = after
			}
			if done < 100 {
				t.Errorf("only %d of 500 changes were done at once", done)
			}
		})
	}
}

// Any other change, or one of this node, is left to a reconciliation.
func TestStepToNodesLeavesTheRest(t *testing.T) {
	node := cluster.Node{Name: "c", Addresses: addrs("192.0.2.3"), PodCIDRs: prefixes("10.1.3.0/24")}
	for what, change := range map[string]func(before, after *Facts){
		"this node's range":                  func(_, after *Facts) { after.Snapshot.Nodes[0].PodCIDRs = prefixes("10.1.9.0/24") },
		"no uplink":                          func(before, _ *Facts) { before.Uplink = nil },
		"another claims this node's address": func(_, after *Facts) { after.Claims = []string{"Node c claims addresses of this node"} },
		"its range is exempt": func(before, after *Facts) {
			before.Config.NonMasquerade = prefixes("10.1.3.0/24")
			after.Config = before.Config
		},
		"the first tunnel": func(_, after *Facts) { after.Snapshot.Nodes[2].Addresses = addrs("198.51.100.3") },
	} {
		before, after := twoNodes(), twoNodes()
		after.Snapshot.Nodes = append(after.Snapshot.Nodes, node)
		if _, ok := before.StepTo(after, Desire(before)); !ok {
			t.Fatal("a new node is left to a reconciliation")
		}
		change(&before, &after)
		if step, ok := before.StepTo(after, Desire(before)); ok {
			t.Errorf("%s: %+v is done at once", what, step)
		}
	}
}
