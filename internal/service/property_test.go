package service

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/testenv"
)

var sameAddresses = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}), cmpopts.EquateEmpty()}

// Whatever changes in whatever order, the sum of all changes is what a new Translator gives for the last state.
func TestIncrementalIsFull(t *testing.T) {
	for _, seed := range testenv.Seeds(t, 20) {
		random := rand.New(rand.NewPCG(seed, 1))
		w, tr, sum := newObjects(), NewTranslator(n1()), map[PortName]Port{}
		node := n1()
		var hostPorts []HostPort
		serving := map[netip.AddrPort]bool{}
		for step := range 60 {
			for range 1 + random.IntN(4) {
				change(random, w, &node, &hostPorts)
			}
			tr.SetNode(node)
			snapshot := w.snapshot()
			got := tr.Translate(snapshot, hostPorts)
			for _, name := range got.Removed {
				if _, known := sum[name]; !known {
					t.Fatalf("seed %d, step %d: %v is removed but did not exist", seed, step, name)
				}
				delete(sum, name)
			}
			for _, p := range got.Set {
				if before, known := sum[p.Name]; known && before.equal(&p) {
					t.Fatalf("seed %d, step %d: %v is reported again", seed, step, p.Name)
				}
				sum[p.Name] = p
			}
			fresh := NewTranslator(node)
			want := fresh.Translate(snapshot, hostPorts)
			wanted := map[PortName]Port{}
			for _, p := range want.Set {
				wanted[p.Name] = p
			}
			if diff := cmp.Diff(wanted, sum, sameAddresses); diff != "" {
				t.Fatalf("seed %d, step %d: (-full +sum of changes):\n%s", seed, step, diff)
			}
			if diff := cmp.Diff(fresh.Ports(), tr.Ports(), sameAddresses); diff != "" {
				t.Fatalf("seed %d, step %d: ports (-full +incremental):\n%s", seed, step, diff)
			}
			if diff := cmp.Diff([]any{want.Problems, want.Health}, []any{got.Problems, got.Health}, sameAddresses); diff != "" {
				t.Fatalf("seed %d, step %d: problems and health (-full +incremental):\n%s", seed, step, diff)
			}
			now := servingNow(snapshot, hostPorts)
			var stopped []netip.AddrPort
			for b := range serving {
				if !now[b] {
					stopped = append(stopped, b)
				}
			}
			slices.SortFunc(stopped, netip.AddrPort.Compare)
			if diff := cmp.Diff(stopped, got.GoneBackends, sameAddresses); diff != "" {
				t.Fatalf("seed %d, step %d: gone (-want +got):\n%s", seed, step, diff)
			}
			serving = now
			unique(t, sum)
		}
	}
}

// unique fails if two ports have the same frontend.
func unique(t *testing.T, ports map[PortName]Port) {
	t.Helper()
	of := map[Frontend]PortName{}
	for name, p := range ports {
		for _, e := range p.Entries {
			if other, taken := of[e.Frontend]; taken {
				t.Fatalf("%v and %v both have %v", name, other, e.Frontend)
			}
			of[e.Frontend] = name
		}
	}
}

// serving are the backends, all of TCP, that serve by some slice, or that a host port leads to.
func servingNow(s *cluster.Snapshot, hostPorts []HostPort) map[netip.AddrPort]bool {
	all := map[netip.AddrPort]bool{}
	for slice := range s.EndpointSlices.All() {
		for _, p := range slice.Ports {
			for _, e := range slice.Endpoints {
				if e.Ready || e.Serving {
					all[netip.AddrPortFrom(e.Address, p.Number)] = true
				}
			}
		}
	}
	for _, h := range hostPorts {
		for _, b := range h.Backends {
			all[b] = true
		}
	}
	return all
}

// change changes one thing. There are few names and addresses, so that conflicts are frequent.
func change(random *rand.Rand, w *objects, node *NodeConfig, hostPorts *[]HostPort) {
	name := func() string { return string(rune('a' + random.IntN(5))) }
	chance := func(of int) bool { return random.IntN(of) == 0 }
	some := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			if chance(2) {
				all = append(all, addr(text))
			}
		}
		return all
	}
	switch random.IntN(12) {
	case 0, 1, 2:
		s := simple(name(), func(s *cluster.Service) {
			s.ClusterIPs = some("10.96.0.1", "10.96.0.2", "fd00:96::1")[:0]
			if chance(2) {
				s.ClusterIPs = []netip.Addr{addr(fmt.Sprintf("10.96.0.%d", 1+random.IntN(4)))}
			}
			s.ExternalIPs = some("10.96.0.1", "198.51.100.1", "192.168.60.11", "192.168.60.12")
			s.LoadBalancerIPs = some("198.51.100.1", "198.51.100.2")
			if chance(2) {
				s.Ports[0].NodePort = uint16(30080 + random.IntN(2))
			}
			if chance(3) {
				s.Ports = append(s.Ports, cluster.ServicePort{Name: "more", Protocol: cluster.TCP, Number: uint16(80 + random.IntN(2)), NodePort: 30080})
			}
			if chance(3) {
				s.ExternalLocal, s.HealthCheckNodePort = true, 30100
			}
			s.InternalLocal = chance(4)
		})
		w.put(s)
	case 3:
		w.remove(simple(name(), nil))
	case 4, 5, 6, 7:
		s := slice(name(), name()+"-slice")
		for i := range random.IntN(4) {
			e := cluster.Endpoint{Address: addr(fmt.Sprintf("10.1.1.%d", i+2)), Ready: chance(2), Serving: chance(2), Terminating: chance(2)}
			e.Node = []string{"", "n1", "n2"}[random.IntN(3)]
			if chance(2) {
				e.Hints = &cluster.EndpointHints{ForZones: []string{"z1"}}
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		w.put(s)
	case 8:
		w.remove(slice("", name()+"-slice"))
	case 9:
		*node = n1()
		node.DSR, node.Zone = chance(2), []string{"", "z1", "z2"}[random.IntN(3)]
		node.NodePortAddresses = node.HostPortAddresses[:random.IntN(4)]
	case 10:
		w.last.Nodes = []cluster.Node{{Name: "n1", Zone: "z1", Addresses: some("192.168.60.11")}, {Name: "n2", Addresses: some("192.168.60.12")}}
	case 11:
		*hostPorts = slices.Clone(*hostPorts)
		if len(*hostPorts) > 2 || len(*hostPorts) > 0 && chance(2) {
			at := random.IntN(len(*hostPorts))
			*hostPorts = slices.Delete(*hostPorts, at, at+1)
			break
		}
		*hostPorts = append(*hostPorts, HostPort{
			Pod: cluster.Key{Namespace: "shop", Name: name()}, Protocol: cluster.TCP, Number: []uint16{80, 81, 30080}[random.IntN(3)],
			Address: []netip.Addr{{}, addr("0.0.0.0"), addr("192.168.60.11"), addr("198.51.100.1")}[random.IntN(4)],
			Backends: []netip.AddrPort{
				netip.MustParseAddrPort("10.1.1.2:8080"),
			},
		})
	}
}
