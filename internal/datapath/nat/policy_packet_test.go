package nat_test

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Policies are evaluated before NAT state is created: a denied packet takes no NAT entry, no port and no entry for
// its pod.
func TestPolicyComesBeforeTranslation(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{Services: true})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		first := func(frame fixtures.Packet, from, to netip.AddrPort) fixtures.Packet {
			out := transport(frame, from, to)
			if protocol == fixtures.ProtoTCP {
				out = out.Segment(fixtures.TcpSYN, 1, 1)
			}
			return out
		}
		pod, frontend := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.FrontendOfPods.At(family)
		f := fixtures.FlowOf(family)
		f.Client = netip.AddrPortFrom(fixtures.External.Addr(family), 41000)

		p.Serve(t, frontend, 0, harness.End{Member: fixtures.PodB, Port: 8080}.At(family))
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: policy.DenyAll, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdA2: harness.PortsOf8080}))
		p.Denies(t, name+" to a Service", harness.PodSends(first(fixtures.FromPod(), pod, frontend)), harness.NoEgress)
		p.Denies(t, name+" to an external host", harness.PodSends(first(fixtures.FromPod(), pod, f.Client)), harness.NoEgress)
		p.Serve(t, f.Frontend, 0, harness.End{Member: fixtures.PodA, Port: 8080}.At(family))
		p.Denies(t, name+" from a client", harness.WireBrings(first(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend)), harness.InClosed)
		p.Denies(t, name+" from an external host", harness.WireBrings(first(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, harness.End{Member: fixtures.PodA, Port: 8080}.At(family))), harness.InClosed)
		maps := p.D.Objects.Maps
		for _, m := range []*ebpf.Map{maps.NatPending, maps.Nat, maps.NatPods} {
			if n, err := table.Count(m); err != nil || n != 0 {
				t.Errorf("%s: %s has %d entries: %v", name, m, n, err)
			}
		}
		if err := table.Read(maps.PendingSlots, func(index *uint32, s *bpf.NatSlot) {
			if s.Key.Protocol != 0 {
				t.Errorf("%s: slot %d is taken by %+v", name, *index, s.Key)
			}
		}); err != nil {
			t.Fatal(err)
		}
		p.Govern(t, fixtures.PodA, policy.Sets{}, nil)
	})
}
