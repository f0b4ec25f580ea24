package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// untilDropped sends a packet until it is dropped, and says how often it was answered before.
func (r *rig) untilDropped(tb testing.TB, in run) (answered int) {
	tb.Helper()
	r.stage.do(func() {
		for ; answered < 100000; answered++ {
			got, err := r.run(in)
			if err != nil {
				tb.Error(err)
				return
			}
			if got.verdict == verdictDrop {
				return
			}
		}
	})
	return answered
}

// Whoever has been sent all the ICMP errors of a second leaves others theirs: another pod, those outside by their prefix, and itself those
// that tell what fits a way.
func TestRefusalsOfOthers(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			nobody, far := netip.AddrPortFrom(nodeA.addr(family), 30099), netip.AddrPortFrom(nodeA.addr(family), 30098)
			r.serve(t, nobody, 0)
			r.serve(t, far, 0, netip.AddrPortFrom(podB.addr(family), 8080))
			asks := func(begin packet, from netip.Addr) packet {
				return begin.ip(from, nobody.Addr()).udp(40001, nobody.Port())
			}
			pod, other := asks(fromPod(), podA.addr(family)), asks(fromPod().macs(podA2.mac, podA2.gateway), podA2.addr(family))
			client, neighbour := asks(eth(router, nodeA.mac), world.addr(family)), asks(eth(router, nodeA.mac), podB.addr(family))
			pod2 := run{program: bpfProgFromPod, device: "blpoda2", in: other.bytes()}
			fills := func(what string, in run, least int) {
				if n := r.untilDropped(t, in); n < least || n >= 100000 {
					t.Errorf("%s was sent %d errors, expected %d and an end", what, n, least)
				}
			}
			if err := clearMap(r.d.objects.maps.IcmpRatelimit); err != nil { // a pod has one share for both families
				t.Fatal(err)
			}
			fills("a pod", pod2, 1000)
			r.checkOne(t, answered("another pod", podSends(pod), unreachable(pod)))
			fills("a client", wireBrings(client), 100)
			r.checkOne(t, answered("a pod beside clients", podSends(pod), unreachable(pod)))
			r.checkOne(t, answered("one with another prefix", wireBrings(neighbour), unreachable(neighbour)))
			large := eth(router, nodeA.mac).ip(world.addr(family), far.Addr()).udp(40001, far.Port()).sized(remoteMTU + 8)
			kind, code := byte(3), byte(4)
			if family == 6 {
				kind, code = 2, 0
			}
			r.checkOne(t, answered("what does not fit", wireBrings(large), errorAbout(large, kind, code, remoteMTU)))
		})
	}
}

// However many packets in pieces somebody sends, the later pieces of what others have begun to send get through. Who does so is
// forgotten its own.
func TestFragmentsOfOthers(t *testing.T) {
	const many = 6000
	p := newPolicyRig(t, Config{EBPFRouting: true})
	for _, pod := range []member{podA, podA2} {
		p.govern(t, pod, policy.Sets{Ingress: rules, Egress: rules}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsOf53, idWorld: portsOf53}))
	}
	pieces := func(begin packet, from, to netip.Addr, id int) (first, last packet) {
		whole := begin.ip(from, to).udp(40000, 53).payload("sixteen bytes at least, and more")
		whole.ident = uint16(id)
		return whole.fragment(0, true), whole.fragment(16, false)
	}
	eachFamily(t, func(t *testing.T, family int) {
		p.forgetFragments(t)
		first, last := pieces(fromPod(), podA.addr(family), podB.addr(family), 1)
		firstIn, lastIn := pieces(fromWire(), podB.addr(family), podA.addr(family), 1)
		p.allows(t, "a first piece of a pod", podSends(first))
		p.allows(t, "a first piece from outside", wireBrings(firstIn))
		own, ownLast := pieces(fromPod(), podA2.v4, podB.v4, 1)
		p.allows(t, "a first piece of who floods", pod2Sends(own))
		p.stage.do(func() {
			for i := range many {
				mine, _ := pieces(fromPod(), podA2.v4, podB.v4, 2+i)
				theirs, _ := pieces(fromWire(), world.v4, podA.v4, 2+i)
				for _, in := range []run{pod2Sends(mine), wireBrings(theirs)} {
					if got, err := p.run(in); err != nil || got.verdict == verdictDrop {
						t.Errorf("piece %d: %v, %v", i, got.verdict, err)
						return
					}
				}
			}
		})
		p.allows(t, "a later piece of the pod", podSends(last))
		p.allows(t, "a later piece from elsewhere outside", wireBrings(lastIn))
		p.denies(t, "a later piece of who floods", pod2Sends(ownLast), noPiece)
		if n, err := countEntries(p.d.objects.maps.Fragments); err != nil || n > 2+2*32 {
			t.Errorf("%d packets are remembered of two that flood, and two others: %v", n, err)
		}
	})
}
