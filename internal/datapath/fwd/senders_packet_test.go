package fwd_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// untilDropped sends a packet until it is dropped, and returns how many replies it got before.
func untilDropped(r *harness.Harness, tb testing.TB, in harness.Run) (answered int) {
	tb.Helper()
	r.Netns.Do(func() {
		for ; answered < 100000; answered++ {
			got, err := r.Run(in)
			if err != nil {
				tb.Error(err)
				return
			}
			if got.Verdict == harness.VerdictDrop {
				return
			}
		}
	})
	return answered
}

// Whoever has been sent all the ICMP errors of a second leaves others theirs: another pod, those outside by their prefix, and itself those
// that tell what fits a way.
func TestRejectionsOfOthers(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			noBackends, far := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30099), netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30098)
			r.Serve(t, noBackends, 0)
			r.Serve(t, far, 0, netip.AddrPortFrom(fixtures.PodB.Addr(family), 8080))
			asks := func(begin fixtures.Packet, from netip.Addr) fixtures.Packet {
				return begin.Ip(from, noBackends.Addr()).Udp(40001, noBackends.Port())
			}
			pod, other := asks(fixtures.FromPod(), fixtures.PodA.Addr(family)), asks(fixtures.FromPod().Macs(fixtures.PodA2.Mac, fixtures.PodA2.Gateway), fixtures.PodA2.Addr(family))
			client, neighbour := asks(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), fixtures.External.Addr(family)), asks(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), fixtures.PodB.Addr(family))
			pod2 := harness.Run{Program: bpf.ProgFromPod, Device: "blpoda2", In: other.Bytes()}
			fills := func(what string, in harness.Run, least int) {
				if n := untilDropped(r, t, in); n < least || n >= 100000 {
					t.Errorf("%s was sent %d errors, expected %d and an end", what, n, least)
				}
			}
			if err := harness.ClearMap(r.D.Objects.Maps.IcmpRatelimit); err != nil { // a pod has one share for both families
				t.Fatal(err)
			}
			fills("a pod", pod2, 1000)
			r.CheckOne(t, harness.Answered("another pod", harness.PodSends(pod), unreachable(pod)))
			fills("a client", harness.WireBrings(client), 100)
			r.CheckOne(t, harness.Answered("a pod beside clients", harness.PodSends(pod), unreachable(pod)))
			r.CheckOne(t, harness.Answered("one with another prefix", harness.WireBrings(neighbour), unreachable(neighbour)))
			large := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(fixtures.External.Addr(family), far.Addr()).Udp(40001, far.Port()).Sized(fixtures.RemoteMTU + 8)
			kind, code := byte(3), byte(4)
			if family == 6 {
				kind, code = 2, 0
			}
			r.CheckOne(t, harness.Answered("what does not fit", harness.WireBrings(large), fixtures.ErrorAbout(large, kind, code, fixtures.RemoteMTU)))
		})
	}
}

// However many packets in pieces somebody sends, the later pieces of what others have begun to send get through. Who does so is
// forgotten its own.
func TestFragmentsOfOthers(t *testing.T) {
	const many = 6000
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	for _, pod := range []fixtures.Member{fixtures.PodA, fixtures.PodA2} {
		p.Govern(t, pod, policy.Sets{Ingress: harness.Rules, Egress: harness.Rules}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf53, harness.IdExternal: harness.PortsOf53}))
	}
	pieces := func(begin fixtures.Packet, from, to netip.Addr, id int) (first, last fixtures.Packet) {
		whole := begin.Ip(from, to).Udp(40000, 53).Payload("sixteen bytes at least, and more")
		whole.Ident = uint16(id)
		return whole.Fragment(0, true), whole.Fragment(16, false)
	}
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.ClearFragments(t)
		first, last := pieces(fixtures.FromPod(), fixtures.PodA.Addr(family), fixtures.PodB.Addr(family), 1)
		firstIn, lastIn := pieces(fixtures.FromWire(), fixtures.PodB.Addr(family), fixtures.PodA.Addr(family), 1)
		p.Allows(t, "a first piece of a pod", harness.PodSends(first))
		p.Allows(t, "a first piece from outside", harness.WireBrings(firstIn))
		own, ownLast := pieces(fixtures.FromPod(), fixtures.PodA2.V4, fixtures.PodB.V4, 1)
		p.Allows(t, "a first piece of who floods", harness.Pod2Sends(own))
		p.Netns.Do(func() {
			for i := range many {
				mine, _ := pieces(fixtures.FromPod(), fixtures.PodA2.V4, fixtures.PodB.V4, 2+i)
				theirs, _ := pieces(fixtures.FromWire(), fixtures.External.V4, fixtures.PodA.V4, 2+i)
				for _, in := range []harness.Run{harness.Pod2Sends(mine), harness.WireBrings(theirs)} {
					if got, err := p.Run(in); err != nil || got.Verdict == harness.VerdictDrop {
						t.Errorf("piece %d: %v, %v", i, got.Verdict, err)
						return
					}
				}
			}
		})
		p.Allows(t, "a later piece of the pod", harness.PodSends(last))
		p.Allows(t, "a later piece from elsewhere outside", harness.WireBrings(lastIn))
		p.Denies(t, "a later piece of who floods", harness.Pod2Sends(ownLast), harness.NoPiece)
		if n, err := table.Count(p.D.Objects.Maps.Fragments); err != nil || n > 2+2*32 {
			t.Errorf("%d packets are remembered of two that flood, and two others: %v", n, err)
		}
	})
}
