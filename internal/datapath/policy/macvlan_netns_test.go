package policy_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Policies select pods with macvlan devices as any others, in both directions, for peers of every kind.
func TestPolicyMacvlan(t *testing.T) {
	for name, cfg := range map[string]config.Datapath{
		"plain":    {EBPFRouting: true, Macvlan: true, Policy: true},
		"services": {EBPFRouting: true, Macvlan: true, Policy: true, Services: true, Flows: config.FlowsAll},
	} {
		t.Run(name, func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
			m1, m2 := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
			const id1, id2 = policy.IdentityPod | 21, policy.IdentityPod | 22
			tables := &policy.Tables{
				Pods: map[netip.Addr]policy.Sets{}, Policies: map[policy.Peer]policy.Ports{}, Identities: map[netip.Addr]policy.Identity{},
				Ports:  map[policy.PortPrefix]policy.Policy{{Ports: harness.PortsEvery}: harness.ThePolicy},
				Blocks: map[netip.Prefix]policy.Identity{fixtures.Prefix("172.30.0.9/32"): harness.IdExternal, fixtures.Prefix("fd00:172:30::9/128"): harness.IdExternal},
			}
			for m, id := range map[*fixtures.Member]policy.Identity{
				&n.A1.Member: harness.IdA, &n.A2.Member: harness.IdA2, &n.B1.Member: harness.IdB, &m1.Member: id1, &m2.Member: id2, &n.A.Member: policy.IdentityNode,
			} {
				tables.Identities[m.V4], tables.Identities[m.V6] = id, id
			}
			for _, family := range fixtures.Families {
				tables.Pods[m1.Addr(family)] = policy.Sets{Ingress: harness.RulesHere}
				tables.Pods[m2.Addr(family)] = policy.Sets{Egress: harness.RulesOf2}
			}
			for _, p := range []policy.Peer{
				{Set: harness.RulesHere, Identity: harness.IdA}, {Set: harness.RulesHere, Identity: id2},
				{Set: harness.RulesOf2, Identity: id1}, {Set: harness.RulesOf2, Identity: harness.IdExternal},
			} {
				tables.Policies[p] = harness.PortsEvery
			}
			if _, err := n.A.D.Policies.Sync(tables); err != nil {
				t.Fatal(err)
			}
			for _, family := range fixtures.Families {
				t.Run(fmt.Sprintf("IPv%d allowed", family), func(t *testing.T) {
					netlab.Carries(t, n.A1.Netns, m1.Netns, n.A1.Addr(family), m1.Addr(family))
					for _, from := range []netlab.Netns{m2.Netns, n.A.Netns} {
						if err := netlab.EchoTCP(from.Dial(t, "tcp", m1.Addr(family)), 1<<20); err != nil {
							t.Error(err)
						}
					}
					netlab.Carries(t, m2.Netns, *n.External, m2.Addr(family), n.ExternalOnSwitch(family))
					netlab.Carries(t, n.B1.Netns, m2.Netns, n.B1.Addr(family), m2.Addr(family))
				})
			}
			n.DropsNothing(t)
			remembersFragmentsByPod(t, n, m2)

			for _, family := range fixtures.Families { // the servers above have ended
				server := m1.ListenUDP(t, m1.Addr(family))
				for _, from := range []netlab.Netns{n.A2.Netns, n.B1.Netns, *n.External, n.B.Netns} {
					fixtures.Write(t, from.Dial(t, "udp", m1.Addr(family)), "denied")
				}
				netlab.ExpectNothing(t, server)
				for _, to := range []*netlab.Pod{n.A1, n.B1} {
					server := to.ListenUDP(t, to.Addr(family))
					fixtures.Write(t, m2.Dial(t, "udp", to.Addr(family)), "denied")
					netlab.ExpectNothing(t, server)
				}
			}
			n.AwaitDropped(t, n.A, map[string]uint64{"from_pod ingress_policy": 2, "to_macvlan ingress_policy": 6, "from_pod egress_policy": 4})
		})
	}
}

// remembersFragmentsByPod sends a packet in pieces and expects that its pieces are remembered among those of the pod: by addresses alone,
// one pod could make the datapath forget another one's.
func remembersFragmentsByPod(t *testing.T, n *netlab.Network, pod *netlab.Pod) {
	t.Helper()
	for _, family := range fixtures.Families {
		server := n.External.ListenUDP(t, n.ExternalOnSwitch(family))
		const text = "in pieces "
		fixtures.Write(t, pod.Dial(t, "udp", n.ExternalOnSwitch(family)), strings.Repeat(text, 400))
		if err := netlab.Expect(server, []byte(strings.Repeat(text, 400))); err != nil {
			t.Error(err)
		}
	}
	own := 0
	err := table.Read(n.A.D.Objects.Maps.Fragments, func(k *bpf.FragmentKey, f *bpf.Fragment) {
		if from := f.Source.Addr(); from != pod.V4 && from != pod.V6 {
			return
		}
		own++
		if int(k.Sender.Device) != pod.Pair.HostIndex {
			t.Errorf("pieces of %s are remembered for device %d and bucket %d, expected device %d", f.Source.Addr(), k.Sender.Device, k.Sender.External, pod.Pair.HostIndex)
		}
	})
	if err != nil || own < len(fixtures.Families) {
		t.Errorf("%d packets in pieces of the pod are remembered: %v", own, err)
	}
}
