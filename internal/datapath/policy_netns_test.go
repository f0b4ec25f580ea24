package datapath

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/policy"
)

// policyModes are ways to the pods, with policies.
func policyModes() map[string]options {
	ebpf := Config{EBPFRouting: true, Masquerade: true, Services: true, Policy: true}
	kernel := Config{Masquerade: true, Services: true, Policy: true}
	return map[string]options{
		"ebpf":   {cfg: ebpf},
		"kernel": {cfg: kernel},
		"tunnel": {cfg: ebpf, tunnel: true},
		"flows":  {cfg: Config{EBPFRouting: true, Masquerade: true, Policy: true, Flows: FlowsAll}},
	}
}

// idOtherNode is that of the other node's own addresses, as those of an ipBlock.
const idOtherNode = policy.Identity(5)

// obey puts a node's pods under rules: what each set allows whom, all ports.
func (n *node) obey(t *testing.T, pods map[*pod]policy.Sets, allowed map[policy.Set][]policy.Identity) {
	t.Helper()
	tables := &policy.Tables{
		Pods: map[netip.Addr]policy.Sets{}, Policies: map[policy.Peer]policy.Ports{}, Identities: map[netip.Addr]policy.Identity{},
		Ports: map[policy.PortPrefix]policy.Policy{{Ports: portsEvery}: theirs},
		Blocks: map[netip.Prefix]policy.Identity{
			prefix("203.0.113.0/24"): idWorld, prefix("2001:db8::/32"): idWorld,
			prefix("172.30.0.9/32"): idWorld, prefix("fd00:172:30::9/128"): idWorld,
			prefix("172.30.0.0/24"): idOtherNode, prefix("fd00:172:30::/64"): idOtherNode,
		},
	}
	for m, id := range map[*member]policy.Identity{&podA: idA, &podA2: idA2, &podB: idB, &n.member: policy.IdentityNode} {
		tables.Identities[m.v4], tables.Identities[m.v6] = id, id
	}
	for p, sets := range pods {
		tables.Pods[p.v4], tables.Pods[p.v6] = sets, sets
	}
	for set, ids := range allowed {
		for _, id := range ids {
			tables.Policies[policy.Peer{Set: set, Identity: id}] = portsEvery
		}
	}
	if _, err := n.d.Policies.Sync(tables); err != nil {
		t.Fatal(err)
	}
}

// Pods that policies select reach whom these allow, by every protocol, in pieces and in segments, and nobody else; so for who reaches them.
func TestPolicyTraffic(t *testing.T) {
	for name, o := range policyModes() {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, o)
			n.a.obey(t, map[*pod]policy.Sets{n.a1: {Ingress: rules, Egress: rulesOf2}, n.a2: {Ingress: rulesHere}},
				map[policy.Set][]policy.Identity{rulesOf2: {idB, idA2, idWorld}, rulesHere: {idA}})
			n.b.obey(t, map[*pod]policy.Sets{n.b1: {Ingress: rulesHere}}, map[policy.Set][]policy.Identity{rulesHere: {idA}})
			n.carriesPods(t)
			for _, family := range families {
				t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
					a1 := n.a1.addr(family)
					carries(t, n.a1.place, *n.world, a1, world.addr(family))
					carries(t, n.a1.place, n.a.place, a1, n.a.addr(family))
					carries(t, n.a.place, n.a1.place, n.a.addr(family), a1)
				})
			}
			n.dropsNothing(t)

			ingress := map[string]string{"ebpf": bpfProgFromWire, "kernel": bpfProgToPod, "tunnel": bpfProgFromTunnel, "flows": bpfProgFromWire}[name]
			for _, family := range families {
				server := n.a1.listenUDP(t, n.a1.addr(family))
				write(t, n.b1.dial(t, "udp", n.a1.addr(family)), "forbidden")
				write(t, n.world.dial(t, "udp", n.a1.addr(family)), "forbidden")
				expectNothing(t, server)
				server = n.b.listenUDP(t, n.b.addr(family))
				write(t, n.a1.dial(t, "udp", n.b.addr(family)), "forbidden")
				expectNothing(t, server)
			}
			want := map[string]uint64{ingress + " ingress_policy": 4, bpfProgFromPod + " egress_policy": 2}
			if name == "tunnel" {
				want = map[string]uint64{ingress + " ingress_policy": 2, bpfProgFromWire + " ingress_policy": 2, bpfProgFromPod + " egress_policy": 2}
			}
			n.awaitDropped(t, n.a, want)
		})
	}
}

// A connection stops when it is no longer allowed, in the midst of its traffic, and goes on when it is again.
func TestPolicyStopsConnections(t *testing.T) {
	modes := policyModes()
	delete(modes, "flows")
	for name, o := range modes {
		for _, family := range families {
			t.Run(fmt.Sprintf("%s/IPv%d", name, family), func(t *testing.T) {
				n := newNetwork(t, o)
				n.a1.serveTCP(t, n.a1.addr(family))
				before := n.b1.dial(t, "tcp", n.a1.addr(family)) // from before there is a policy
				if err := echoTCP(before, 1000); err != nil {
					t.Fatal(err)
				}
				selected := map[*pod]policy.Sets{n.a1: {Ingress: rules}}
				n.a.obey(t, selected, map[policy.Set][]policy.Identity{rules: {idB}})
				c := n.b1.dial(t, "tcp", n.a1.addr(family))
				for i := range 2 {
					if err := echoTCP(c, 100000); err != nil {
						t.Fatal(err)
					}
					if err := echoTCP(before, 100000); err != nil {
						t.Fatal(err)
					}
					n.a.obey(t, selected, map[policy.Set][]policy.Identity{rules: {idWorld}})
					expectStopped(t, c)
					if i == 0 {
						expectStopped(t, before)
					}
					n.a.obey(t, selected, map[policy.Set][]policy.Identity{rules: {idB}})
					expectLate(t, c)
					if i == 0 {
						expectLate(t, before)
					}
				}
			})
		}
	}
}

// expectStopped sends on a connection to an echo server and expects nothing back.
func expectStopped(t *testing.T, c net.Conn) {
	t.Helper()
	write(t, c, "stop")
	if err := c.SetReadDeadline(time.Now().Add(nothingMore)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes come back", n)
	}
}

// expectLate expects what expectStopped has sent, once it is sent again and let pass.
func expectLate(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len("stop"))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "stop" {
		t.Errorf("%q comes when it is allowed again: %v", b, err)
	}
}

// Through Services, policies see backends and the clients' own addresses.
func TestPolicyServices(t *testing.T) {
	for _, routing := range []bool{true, false} {
		t.Run(fmt.Sprintf("ebpf=%t", routing), func(t *testing.T) {
			n := newNetwork(t, options{cfg: Config{EBPFRouting: routing, Masquerade: true, Services: true, Policy: true}})
			pods := map[*pod]policy.Sets{n.a1: {Ingress: rules, Egress: rulesOf2}, n.a2: {Ingress: rulesHere, Egress: rulesHere}}
			allowed := map[policy.Set][]policy.Identity{rulesOf2: {idB, idA2, idWorld}, rulesHere: {idA}, rules: {idWorld}}
			for _, family := range families {
				t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
					n.a.obey(t, pods, allowed)
					for name, backend := range n.places(family) {
						t.Run(name, func(t *testing.T) {
							n.reachesThroughService(t, backend, family)
						})
					}
					n.a1.serveTCP(t, n.a1.addr(family))
					n.a1.serveUDP(t, n.a1.addr(family))
					n.a.serve(t, n.a.addr(family), n.a1.addr(family))
					carriesService(t, *n.world, n.a.addr(family))
					if family == families[0] {
						n.dropsNothing(t) // what follows drops
					}

					less := maps.Clone(allowed)
					less[rules], less[rulesOf2] = nil, []policy.Identity{idA2}
					n.a.obey(t, pods, less)
					server := n.b1.listenUDP(t, n.b1.addr(family))
					n.a.serve(t, clusterIP.addr(family), n.b1.addr(family))
					write(t, n.a1.dialPort(t, "udp", netip.AddrPortFrom(clusterIP.addr(family), worldPort)), "forbidden")
					expectNothing(t, server)
				})
			}
		})
	}
}
