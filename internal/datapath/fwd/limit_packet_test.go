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

// send runs a packet of pod A, a GSO packet if gsoSize is not 0.
func send(t *testing.T, r *harness.Harness, p fixtures.Packet, gsoSize uint32) (out harness.Outcome) {
	t.Helper()
	in := harness.PodSends(p)
	in.GsoSize = gsoSize
	var err error
	if r.Netns.Do(func() { out, err = r.Run(in) }); err != nil {
		t.Fatal(err)
	}
	return out
}

// A pod that has sent too much sends nothing more, wherever it sends to. What leaves the node is delayed instead where uplinks hold packets
// until their departure time.
func TestLimitFromPod(t *testing.T) {
	for _, cfg := range []config.Datapath{{EBPFRouting: true, Masquerade: true, Services: true}, {EBPFRouting: true, Policy: true}, {}} {
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			r := harness.New(t, cfg)
			run := func(p fixtures.Packet) harness.Outcome {
				t.Helper()
				return send(t, r, p, 0)
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
				if third := run(p); third.Verdict != harness.VerdictDrop { // each takes 42 ms and more
					t.Errorf("a packet that would depart in more than 20 ms has verdict %s", third.Verdict)
				}
				// What stays on the node has its own time, and no departure time.
				if got := run(to(fixtures.PodA2)); got.Verdict != harness.VerdictRedirect || got.Departure != 0 {
					t.Errorf("a packet to a pod here: verdict %s, departure %d", got.Verdict, got.Departure)
				}
			}
		})
	}
}

// The limit is one for all ways: what stays on the node counts for what leaves it, too.
func TestLimitOfAllWays(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true})
	limit(t, r, fwd.Limit{Rate: 1, Departs: true})
	here := send(t, r, fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodA2.V4).Udp(1, 2), 0)
	away := send(t, r, fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4).Udp(1, 2), 0)
	if here.Verdict != harness.VerdictRedirect || away.Verdict != harness.VerdictDrop {
		t.Errorf("to a pod here: verdict %s; then to a pod on another node: %s", here.Verdict, away.Verdict)
	}
}

// What the node receives without looking at its addresses counts, too: pods reach its sockets by link-local addresses.
func TestLimitOfLink(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true, Masquerade: true, Services: true})
	for name, p := range map[string]fixtures.Packet{
		"a datagram": fixtures.FromPod().Ipv6(fixtures.LinkLocal(fixtures.PodA.Mac), fixtures.Addr("fe80::1")).Udp(1, 2),
		"ARP":        fixtures.FromPod().Ether(fixtures.EtherARP).Payload("\x00\x01\x08\x00\x06\x04\x00\x01 and addresses, 28 bytes"),
	} {
		limit(t, r, fwd.Limit{Rate: 1})
		if first, second := send(t, r, p, 0), send(t, r, p, 0); first.Verdict != harness.VerdictNext || second.Verdict != harness.VerdictDrop {
			t.Errorf("two of %s: verdicts %s, %s", name, first.Verdict, second.Verdict)
		}
	}
}

// Each segment of a GSO packet counts with its headers, however long the pod makes them.
func TestLimitOfSegments(t *testing.T) {
	r := harness.New(t, config.Datapath{EBPFRouting: true})
	const size, options = 100, 40
	v4, v6 := fixtures.FromPod().Ipv4(fixtures.PodA.V4, fixtures.PodB.V4), fixtures.FromPod().Ipv6(fixtures.PodA.V6, fixtures.PodB.V6)
	extended := v6
	for range 4 {
		extended = extended.Extend(fixtures.ProtoDstOptions)
	}
	for name, test := range map[string]struct {
		packet  fixtures.Packet
		headers uint64
	}{
		"UDP":                    {v4.Udp(1, 2), 14 + 20 + 8},
		"TCP":                    {v4.Tcp(1, 2), 14 + 20 + 20},
		"TCP with options":       {v4.TcpOptions(1, 2, make([]byte, options)), 14 + 20 + 20 + options},
		"IPv6, TCP":              {v6.TcpOptions(1, 2, make([]byte, 12)), 14 + 40 + 32},
		"IPv6 extension headers": {extended.Tcp(1, 2), 14 + 40 + 4*8 + 20},
		"too many of them":       {extended.Extend(fixtures.ProtoDstOptions).Tcp(1, 2), 14 + 40 + 5*8 + 20},
	} {
		p := test.packet.Sized(1400)
		all := uint64(len(p.Bytes()))
		all += (all - 1) / size * test.headers
		limit(t, r, fwd.Limit{Rate: 100 * all, Departs: true}) // all is sent in 10 ms
		first, second := send(t, r, p, size), send(t, r, p, size)
		if ahead := second.Departure - first.Departure; second.Verdict != harness.VerdictDrop && ahead < 9_900_000 {
			t.Errorf("%s: the next packet departs %d ns later, want 10 ms: verdict %s", name, ahead, second.Verdict)
		}
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
