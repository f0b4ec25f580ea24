package fwd_test

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// limit gives pod A a limit of what it sends, and pod A2 one of what it receives.
func limit(t *testing.T, r *harness.Harness, l fwd.Limit) {
	t.Helper()
	all, err := r.D.Endpoints.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Addr{fixtures.PodA.V4, fixtures.PodA.V6, fixtures.PodA2.V4, fixtures.PodA2.V6} {
		e := all[a]
		e.LimitedEgress = a == fixtures.PodA.V4 || a == fixtures.PodA.V6
		e.LimitedIngress = !e.LimitedEgress
		if err := r.D.Endpoints.Set(a, e); err != nil {
			t.Fatal(err)
		}
		if e.LimitedEgress {
			if err := r.D.Limits.Delete(e.Interface); err != nil { // starts its time again
				t.Fatal(err)
			}
			if err := r.D.Limits.Set(e.Interface, l); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A pod that has sent too much sends nothing more, wherever it sends to. What leaves the node is delayed instead where uplinks hold packets
// until their departure time.
func TestLimitFromPod(t *testing.T) {
	for _, cfg := range []config.Datapath{{EBPFRouting: true, Masquerade: true, Services: true}, {EBPFRouting: true, Policy: true}, {}} {
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			r := harness.New(t, cfg)
			run := func(p fixtures.Packet) (out harness.Outcome) {
				t.Helper()
				var err error
				if r.Netns.Do(func() { out, err = r.Run(harness.PodSends(p)) }); err != nil {
					t.Fatal(err)
				}
				return out
			}
			for _, family := range []int{4, 6} {
				to := func(m fixtures.Member) fixtures.Packet {
					return fixtures.FromPod().Ip(fixtures.PodA.Addr(family), m.Addr(family)).Udp(1, 2)
				}
				for name, peer := range map[string]fixtures.Member{"a pod here": fixtures.PodA2, "a pod on another node": fixtures.PodB, "its own node": fixtures.NodeA, "an external host": fixtures.External} {
					limit(t, r, fwd.Limit{Rate: 1}) // a packet takes a minute
					if got := run(to(peer)); got.Verdict == harness.VerdictDrop {
						t.Errorf("the first packet to %s is dropped", name)
					}
					before := r.Counters(t)["from_pod bandwidth"].Packets
					if got := run(to(peer)); got.Verdict != harness.VerdictDrop {
						t.Errorf("the second packet to %s has verdict %s", name, got.Verdict)
					}
					if got := r.Counters(t)["from_pod bandwidth"].Packets; got != before+1 {
						t.Errorf("packets dropped to %s: %d, before %d", name, got, before)
					}
				}
				if !cfg.EBPFRouting {
					continue
				}
				const rate = 1000
				p := to(fixtures.PodB)
				limit(t, r, fwd.Limit{Rate: rate, Departs: true})
				first, second := run(p), run(p)
				if first.Verdict != harness.VerdictRedirect || first.Departure == 0 || second.Departure-first.Departure < uint64(len(p.Bytes()))*99e7/rate {
					t.Errorf("departure of two packets: %d, %d, verdict %s", first.Departure, second.Departure, first.Verdict)
				}
				for range 4 { // 4 * 42 ms and more
					second = run(p)
				}
				if second.Verdict != harness.VerdictDrop {
					t.Errorf("a packet that would depart in more than 100 ms has verdict %s", second.Verdict)
				}
				// What stays on the node has its own time, and no departure time.
				if got := run(to(fixtures.PodA2)); got.Verdict != harness.VerdictRedirect || got.Departure != 0 {
					t.Errorf("a packet to a pod here: verdict %s, departure %d", got.Verdict, got.Departure)
				}
			}
		})
	}
}

// Packets to a pod with a limit of what it receives are redirected to the host end, whose program lets them pass.
func TestLimitToPod(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true, Services: true, Handled: 0x0123456789abcdef})
	limit(t, r, fwd.Limit{Rate: 1 << 30})
	for name, in := range map[string]harness.Run{
		"a pod here":  harness.PodSends(fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodA2.V4).Udp(1, 2)),
		"a pod there": harness.WireBrings(fixtures.FromWire().Ipv4(fixtures.PodB.V4, fixtures.PodA2.V4).Udp(1, 2)),
	} {
		in.Ingress = in.Device
		var got harness.Outcome
		var err error
		if r.Netns.Do(func() { got, err = r.Run(in) }); err != nil {
			t.Fatal(err)
		}
		if got.Verdict != harness.VerdictRedirect || got.CB[0] == 0 {
			t.Errorf("from %s: verdict %s, control block %x, want a redirected packet with a mark", name, got.Verdict, got.CB)
		}
	}
}

// A limit that is set again keeps its time.
func TestLimits(t *testing.T) {
	d := harness.New(t, config.Datapath{EBPFRouting: true}).D
	if err := d.Limits.Sync(map[int]fwd.Limit{7: {Rate: 5}, 8: {Rate: 6, Departs: true}}); err != nil {
		t.Fatal(err)
	}
	want := map[int]fwd.Limit{8: {Rate: 6, Departs: true}, 9: {Rate: 7}}
	if err := d.Limits.Sync(want); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Limits.All(); err != nil || len(got) != 2 || got[8] != want[8] || got[9] != want[9] {
		t.Errorf("limits %v, want %v: %v", got, want, err)
	}
}
