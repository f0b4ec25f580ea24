package fwd_test

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// All that a pod sends which goes through the stack is left to the stack, and its source is checked all the same. A
// second packet meets the decision about the first.
func TestThroughStackFromPod(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := config.Datapath{EBPFRouting: true, Masquerade: masquerade}
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			r := harness.New(t, cfg)
			r.ThroughStack(t, fixtures.PodA, true)
			spoofed := uint32(bpf.DropReasonDROP_SPOOFED_SOURCE)
			var cases []harness.PacketCase
			harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
				send := func(src, dst fixtures.Member) harness.Run {
					return harness.PodSends(transport(fixtures.FromPod().Ip(src.Addr(family), dst.Addr(family))))
				}
				for what, dst := range map[string]fixtures.Member{
					"a pod here": fixtures.PodA2, "itself": fixtures.PodA, "a pod address that no pod has": fixtures.NoPod, "a pod on another node": fixtures.PodB,
					"a pod on an unresolved node": fixtures.PodC, "another node": fixtures.NodeB, "its own node": fixtures.NodeA, "an external host": fixtures.External,
				} {
					cases = append(cases,
						harness.Passes(name+" to "+what, send(fixtures.PodA, dst)),
						harness.Passes(name+" to "+what+" again", send(fixtures.PodA, dst)),
						harness.Drops(name+" spoofed to "+what, send(fixtures.PodA2, dst), spoofed),
					)
				}
			})
			r.Check(t, cases)
		})
	}
}

// What others send to such a pod is left to the stack, from this node and from the wire, and nothing else is.
func TestThroughStackToPod(t *testing.T) {
	for _, masquerade := range []bool{true, false} {
		cfg := config.Datapath{EBPFRouting: true, Masquerade: masquerade}
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			r := harness.New(t, cfg)
			r.ThroughStack(t, fixtures.PodA2, true)
			var cases []harness.PacketCase
			harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
				here := transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), fixtures.PodA2.Addr(family)))
				away := transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), fixtures.PodB.Addr(family)))
				for _, again := range []string{"", " again"} {
					cases = append(cases,
						harness.Passes(name+" from a pod here"+again, harness.PodSends(here)),
						harness.Wired(name+" from a pod here to another node"+again, away),
						harness.Arrives(name+" from another node to the other pod"+again, transport(fixtures.FromWire().Ip(fixtures.PodB.Addr(family), fixtures.PodA.Addr(family)))),
					)
					for what, src := range map[string]fixtures.Member{"a pod on another node": fixtures.PodB, "another node": fixtures.NodeB, "an external host": fixtures.External} {
						p := transport(fixtures.FromWire().Ip(src.Addr(family), fixtures.PodA2.Addr(family)))
						cases = append(cases, harness.Passes(name+" from "+what+again, harness.WireBrings(p)))
					}
				}
			})
			r.Check(t, cases)
		})
	}
}

// The path changes with the table, also between addresses in the flow cache.
func TestThroughStackChanges(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true})
	harness.Each(func(name string, family int, transport func(fixtures.Packet) fixtures.Packet) {
		here := transport(fixtures.FromPod().Ip(fixtures.PodA.Addr(family), fixtures.PodA2.Addr(family)))
		brought := transport(fixtures.FromWire().Ip(fixtures.PodB.Addr(family), fixtures.PodA2.Addr(family)))
		direct := []harness.PacketCase{
			harness.Delivered(name+" from a pod here, direct", harness.PodSends(here), here, fixtures.PodA2),
			harness.Delivered(name+" from the wire, direct", harness.WireBrings(brought), brought, fixtures.PodA2),
		}
		r.Check(t, direct)
		r.ThroughStack(t, fixtures.PodA2, true)
		r.Check(t, []harness.PacketCase{
			harness.Passes(name+" from a pod here, through the stack", harness.PodSends(here)),
			harness.Passes(name+" from the wire, through the stack", harness.WireBrings(brought)),
		})
		r.ThroughStack(t, fixtures.PodA2, false)
		r.Check(t, direct)
	})
}

// The flag comes back from the table as it was written.
func TestThroughStackRoundTrip(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true})
	r.ThroughStack(t, fixtures.PodA2, true)
	all, err := r.D.Endpoints.All()
	if err != nil {
		t.Fatal(err)
	}
	if !all[fixtures.PodA2.V4].ThroughStack || !all[fixtures.PodA2.V6].ThroughStack || all[fixtures.PodA.V4].ThroughStack {
		t.Errorf("endpoints %v", all)
	}
	if changed, err := r.D.Endpoints.Sync(all); changed != 0 || err != nil {
		t.Errorf("%d endpoints are written again: %v", changed, err)
	}
}
