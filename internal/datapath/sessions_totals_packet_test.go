package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// holdElsewhere puts a permit of so many packets of one byte on every CPU, as if they had gone by there, and says how many CPUs there are. It
// takes the place of a decision, of which tests use few.
func (p *policyRig) holdElsewhere(t *testing.T, place uint32, from, to netip.AddrPort, packets uint64) (cpus uint64) {
	t.Helper()
	var all []bpfFlowCacheEntry
	if err := p.d.objects.maps.FlowCache.Lookup(place, &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		d := bpfFlowCacheEntry{Destination: addressOf(to.Addr())}
		d.Verdict.Sender, d.Verdict.SenderPort, d.Verdict.DestinationPort = addressOf(from.Addr()), networkOrder(from.Port()), networkOrder(to.Port())
		d.Verdict.Protocol, d.Verdict.Packets, d.Verdict.Bytes = protoTCP, packets, packets
		all[i] = d
	}
	if err := p.d.objects.maps.FlowCache.Put(place, all); err != nil {
		t.Fatal(err)
	}
	return uint64(len(all))
}

// Totals have what other CPUs hold of a session, and what came after its end had been told.
func TestFlowsTellAllThatWasCounted(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	reader := p.watch(t)
	eachFamily(t, func(t *testing.T, family int) {
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		there := func(flags byte) { p.allows(t, "there", wireBrings(segmentOf(fromWire(), client, server, flags))) }
		back := func(flags byte) { p.allows(t, "back", podSends(segmentOf(fromPod(), server, client, flags))) }
		there(tcpSYN)
		back(tcpSYN | tcpACK)
		there(tcpFIN | tcpACK)
		back(tcpFIN | tcpACK)
		there(tcpACK)
		cpus := p.holdElsewhere(t, 1, client, server, 10)
		p.holdElsewhere(t, 2, server, client, 100)
		p.holdElsewhere(t, 3, client, end{podA, 81}.at(family), 1000) // another session's

		events := told(t, reader)
		p.d.Sessions.setHeldAt(time.Time{})
		if err := p.d.Sessions.Complete(events); err != nil {
			t.Fatal(err)
		}
		size := uint64(len(segmentOf(fromWire(), client, server, tcpACK).bytes()))
		closed := events[len(events)-1] // the only one
		if want := [2]uint64{3 + 10*cpus, 2 + 100*cpus}; closed.Kind != flow.Closed || closed.Packets != want {
			t.Errorf("%s with %d packets, expected %d", closed.Kind, closed.Packets, want)
		}
		if want := [2]uint64{3*size + 10*cpus, 2*size + 100*cpus}; closed.Bytes != want {
			t.Errorf("%d bytes, expected %d", closed.Bytes, want)
		}

		// Not so often: then the session alone, most of the time without the last ACK, which has a permit.
		again := []flow.Event{closed}
		again[0].Packets = [2]uint64{1, 1}
		p.d.Sessions.setHeldAt(time.Now().Add(time.Hour))
		if err := p.d.Sessions.Complete(again); err != nil || again[0].Packets[0]|1 != 3 || again[0].Packets[1] != 2 {
			t.Errorf("%d packets: %v", again[0].Packets, err)
		}
		// Another session with the same ends is not the one that was told of.
		again[0].Packets = [2]uint64{9, 9}
		if err := p.d.Sessions.Complete(again); err != nil || again[0].Packets != [2]uint64{9, 9} {
			t.Errorf("%d packets: %v", again[0].Packets, err)
		}

		var expired []Session
		now, err := Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		if _, err := p.d.Sessions.Expire(now+time.Hour, func(Session) { seen++ }, func(s Session) { expired = append(expired, s) }); err != nil {
			t.Fatal(err)
		}
		if want := [2]uint64{3 + 10*cpus, 2 + 100*cpus}; seen != 1 || len(expired) != 1 || expired[0].Packets != want || expired[0].Source != client {
			t.Errorf("%d are seen, expired %+v, expected %d packets", seen, expired, want)
		}
		for place := range uint32(4) {
			p.holdElsewhere(t, place, client, server, 0)
		}
	})
}

// The key of a session and its place while it is young are those that the datapath makes, whichever end has opened it.
func TestSessionKey(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	p.egress(t, map[policy.Identity]policy.Ports{idB: portsEvery})
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsEvery})
	eachFamily(t, func(t *testing.T, family int) {
		for _, ports := range [][2]uint16{{40000, 80}, {80, 40000}, {256, 1}, {7, 7}} {
			client, server := end{podB, ports[0]}.at(family), end{podA, ports[1]}.at(family)
			p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), client, server, tcpSYN)))
			for _, e := range []flow.Event{{Source: client, Destination: server, Protocol: protoTCP}, {Source: server, Destination: client, Protocol: protoTCP}} {
				for _, where := range []string{"young", "settled"} {
					if v, err := p.d.Sessions.findOf(&e); v == nil || v.Packets != [2]uint64{1, 0} || err != nil {
						t.Errorf("%s to %s, %s: %+v, %v", e.Source, e.Destination, where, v, err)
					}
					if err := p.d.Sessions.settleYoung(); err != nil {
						t.Fatal(err)
					}
				}
			}
			p.forget(t)
		}
	})
}
