package policy_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/policy"
)

// policyModes are paths to pods, with policies.
func policyModes() map[string]netlab.Options {
	ebpf := config.Datapath{EBPFRouting: true, Masquerade: true, Services: true, Policy: true}
	kernel := config.Datapath{Masquerade: true, Services: true, Policy: true}
	return map[string]netlab.Options{
		"ebpf":   {Cfg: ebpf},
		"kernel": {Cfg: kernel},
		"tunnel": {Cfg: ebpf, Tunnel: true},
		"flows":  {Cfg: config.Datapath{EBPFRouting: true, Masquerade: true, Policy: true, Flows: config.FlowsAll}},
	}
}

// idOtherNode is the identity of the other node's addresses, as an ipBlock.
const idOtherNode = policy.Identity(5)

// obey applies rules to a node's pods: the identities that each set allows, on all ports.
func obey(n *netlab.Node, t *testing.T, pods map[*netlab.Pod]policy.Sets, allowed map[policy.Set][]policy.Identity) {
	t.Helper()
	tables := &policy.Tables{
		Pods: map[netip.Addr]policy.Sets{}, Policies: map[policy.Peer]policy.Ports{}, Identities: map[netip.Addr]policy.Identity{},
		Ports: map[policy.PortPrefix]policy.Policy{{Ports: harness.PortsEvery}: harness.ThePolicy},
		Blocks: map[netip.Prefix]policy.Identity{
			fixtures.Prefix("203.0.113.0/24"): harness.IdExternal, fixtures.Prefix("2001:db8::/32"): harness.IdExternal,
			fixtures.Prefix("172.30.0.9/32"): harness.IdExternal, fixtures.Prefix("fd00:172:30::9/128"): harness.IdExternal,
			fixtures.Prefix("172.30.0.0/24"): idOtherNode, fixtures.Prefix("fd00:172:30::/64"): idOtherNode,
		},
	}
	for m, id := range map[*fixtures.Member]policy.Identity{&fixtures.PodA: harness.IdA, &fixtures.PodA2: harness.IdA2, &fixtures.PodB: harness.IdB, &n.Member: policy.IdentityNode} {
		tables.Identities[m.V4], tables.Identities[m.V6] = id, id
	}
	for p, sets := range pods {
		tables.Pods[p.V4], tables.Pods[p.V6] = sets, sets
	}
	for set, ids := range allowed {
		for _, id := range ids {
			tables.Policies[policy.Peer{Set: set, Identity: id}] = harness.PortsEvery
		}
	}
	if _, err := n.D.Policies.Sync(tables); err != nil {
		t.Fatal(err)
	}
}

// Selected pods reach the allowed peers and no others, by every protocol, in fragments and in segments; inbound
// likewise.
func TestPolicyTraffic(t *testing.T) {
	for name, o := range policyModes() {
		t.Run(name, func(t *testing.T) {
			n := netlab.NewNetwork(t, o)
			obey(n.A, t, map[*netlab.Pod]policy.Sets{n.A1: {Ingress: harness.Rules, Egress: harness.RulesOf2}, n.A2: {Ingress: harness.RulesHere}},
				map[policy.Set][]policy.Identity{harness.RulesOf2: {harness.IdB, harness.IdA2, harness.IdExternal}, harness.RulesHere: {harness.IdA}})
			obey(n.B, t, map[*netlab.Pod]policy.Sets{n.B1: {Ingress: harness.RulesHere}}, map[policy.Set][]policy.Identity{harness.RulesHere: {harness.IdA}})
			n.CarriesPods(t)
			for _, family := range fixtures.Families {
				t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
					a1 := n.A1.Addr(family)
					netlab.Carries(t, n.A1.Netns, *n.External, a1, fixtures.External.Addr(family))
					netlab.Carries(t, n.A1.Netns, n.A.Netns, a1, n.A.Addr(family))
					netlab.Carries(t, n.A.Netns, n.A1.Netns, n.A.Addr(family), a1)
				})
			}
			n.DropsNothing(t)

			ingress := map[string]string{"ebpf": bpf.ProgFromWire, "kernel": bpf.ProgToPod, "tunnel": bpf.ProgFromTunnel, "flows": bpf.ProgFromWire}[name]
			for _, family := range fixtures.Families {
				server := n.A1.ListenUDP(t, n.A1.Addr(family))
				fixtures.Write(t, n.B1.Dial(t, "udp", n.A1.Addr(family)), "denied")
				fixtures.Write(t, n.External.Dial(t, "udp", n.A1.Addr(family)), "denied")
				netlab.ExpectNothing(t, server)
				server = n.B.ListenUDP(t, n.B.Addr(family))
				fixtures.Write(t, n.A1.Dial(t, "udp", n.B.Addr(family)), "denied")
				netlab.ExpectNothing(t, server)
			}
			want := map[string]uint64{ingress + " ingress_policy": 4, bpf.ProgFromPod + " egress_policy": 2}
			if name == "tunnel" {
				want = map[string]uint64{ingress + " ingress_policy": 2, bpf.ProgFromWire + " ingress_policy": 2, bpf.ProgFromPod + " egress_policy": 2}
			}
			n.AwaitDropped(t, n.A, want)
		})
	}
}

// A connection stops during traffic when it is no longer allowed, and continues when it is again.
func TestPolicyStopsConnections(t *testing.T) {
	modes := policyModes()
	delete(modes, "flows")
	for name, o := range modes {
		for _, family := range fixtures.Families {
			t.Run(fmt.Sprintf("%s/IPv%d", name, family), func(t *testing.T) {
				n := netlab.NewNetwork(t, o)
				n.A1.ServeTCP(t, n.A1.Addr(family))
				before := n.B1.Dial(t, "tcp", n.A1.Addr(family)) // from before the policy
				if err := netlab.EchoTCP(before, 1000); err != nil {
					t.Fatal(err)
				}
				selected := map[*netlab.Pod]policy.Sets{n.A1: {Ingress: harness.Rules}}
				obey(n.A, t, selected, map[policy.Set][]policy.Identity{harness.Rules: {harness.IdB}})
				c := n.B1.Dial(t, "tcp", n.A1.Addr(family))
				for i := range 2 {
					if err := netlab.EchoTCP(c, 100000); err != nil {
						t.Fatal(err)
					}
					if err := netlab.EchoTCP(before, 100000); err != nil {
						t.Fatal(err)
					}
					obey(n.A, t, selected, map[policy.Set][]policy.Identity{harness.Rules: {harness.IdExternal}})
					expectStopped(t, c)
					if i == 0 {
						expectStopped(t, before)
					}
					obey(n.A, t, selected, map[policy.Set][]policy.Identity{harness.Rules: {harness.IdB}})
					expectLate(t, c)
					if i == 0 {
						expectLate(t, before)
					}
				}
			})
		}
	}
}

// expectStopped sends on a connection to an echo server and expects no reply.
func expectStopped(t *testing.T, c net.Conn) {
	t.Helper()
	fixtures.Write(t, c, "stop")
	if err := c.SetReadDeadline(time.Now().Add(netlab.NothingMore)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes come back", n)
	}
}

// expectLate expects the reply to what expectStopped has sent, once it is retransmitted and allowed.
func expectLate(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(netlab.Patience)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len("stop"))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "stop" {
		t.Errorf("%q comes when it is allowed again: %v", b, err)
	}
}

// Behind Services, policies apply to backends and to the original client addresses.
func TestPolicyServices(t *testing.T) {
	for _, routing := range []bool{true, false} {
		t.Run(fmt.Sprintf("ebpf=%t", routing), func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: routing, Masquerade: true, Services: true, Policy: true}})
			pods := map[*netlab.Pod]policy.Sets{n.A1: {Ingress: harness.Rules, Egress: harness.RulesOf2}, n.A2: {Ingress: harness.RulesHere, Egress: harness.RulesHere}}
			allowed := map[policy.Set][]policy.Identity{harness.RulesOf2: {harness.IdB, harness.IdA2, harness.IdExternal}, harness.RulesHere: {harness.IdA}, harness.Rules: {harness.IdExternal}}
			for _, family := range fixtures.Families {
				t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
					obey(n.A, t, pods, allowed)
					for name, backend := range n.Places(family) {
						t.Run(name, func(t *testing.T) {
							n.ReachesThroughService(t, backend, family)
						})
					}
					n.A1.ServeTCP(t, n.A1.Addr(family))
					n.A1.ServeUDP(t, n.A1.Addr(family))
					n.A.Serve(t, n.A.Addr(family), n.A1.Addr(family))
					netlab.CarriesService(t, *n.External, n.A.Addr(family))
					if family == fixtures.Families[0] {
						n.DropsNothing(t) // the following packets are dropped
					}

					less := maps.Clone(allowed)
					less[harness.Rules], less[harness.RulesOf2] = nil, []policy.Identity{harness.IdA2}
					obey(n.A, t, pods, less)
					server := n.B1.ListenUDP(t, n.B1.Addr(family))
					n.A.Serve(t, fixtures.ClusterIP.Addr(family), n.B1.Addr(family))
					fixtures.Write(t, n.A1.DialPort(t, "udp", netip.AddrPortFrom(fixtures.ClusterIP.Addr(family), fixtures.ServicePort)), "denied")
					netlab.ExpectNothing(t, server)
				})
			}
		})
	}
}
