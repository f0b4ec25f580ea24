package datapath

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// tale is what an event tells of a session, without what other tests look at.
type tale struct {
	kind    flow.Kind
	first   bool
	source  netip.AddrPort
	packets [2]uint64
	program string
}

func tales(events []flow.Event) (all []tale) {
	for _, e := range events {
		all = append(all, tale{e.Kind, e.First, e.Source, e.Packets, e.Program})
	}
	return all
}

func expectTales(t *testing.T, what string, events []flow.Event, want ...tale) {
	t.Helper()
	if diff := cmp.Diff(want, tales(events), cmp.AllowUnexported(tale{}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("%s (-expected +got):\n%s", what, diff)
	}
}

// What is over before the datapath is asked is told of once, with all of it; what is answered by then, once as well.
func TestFlowsTellOnceOfShortSessions(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	reader := p.watch(t)
	eachFamily(t, func(t *testing.T, family int) {
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		client, lasting, server := end{podB, 40000}.at(family), end{podB, 40001}.at(family), end{podA, 80}.at(family)
		for _, c := range []netip.AddrPort{client, lasting} {
			p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), c, server, tcpSYN)))
			p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, c, tcpSYN|tcpACK)))
		}
		p.allows(t, "FIN", wireBrings(segmentOf(fromWire(), client, server, tcpFIN|tcpACK)))
		p.allows(t, "FIN back", podSends(segmentOf(fromPod(), server, client, tcpFIN|tcpACK)))
		events := told(t, reader)
		expectTales(t, "asked", events,
			tale{flow.Closed, true, client, [2]uint64{2, 2}, bpfProgFromPod}, tale{flow.Answered, true, lasting, [2]uint64{1, 1}, ""})
		if len(events) > 0 && (events[0].Ingress != theirs || events[0].SourceIdentity != idB || events[0].DestinationIdentity != idA) {
			t.Errorf("event %+v", events[0])
		}
		p.allows(t, "FIN", wireBrings(segmentOf(fromWire(), lasting, server, tcpFIN|tcpACK)))
		expectTales(t, "asked again", told(t, reader))
		p.allows(t, "RST", wireBrings(segmentOf(fromWire(), lasting, server, tcpRST|tcpACK)))
		expectTales(t, "reset", told(t, reader), tale{flow.Closed, false, lasting, [2]uint64{3, 1}, bpfProgFromWire})
		p.forget(t)
	})
}

// A session that leaves its place is told of then, without being asked, and so is one that begins elsewhere.
func TestFlowsTellOfSessionsThatMove(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	reader := p.watch(t)
	eachFamily(t, func(t *testing.T, family int) {
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		server := end{podA, 80}.at(family)
		clients := onePlace(t, server, protoTCP, 3)
		syn := func(c netip.AddrPort) { p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), c, server, tcpSYN))) }
		restore := reader.silence()
		syn(clients[0])
		p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, clients[0], tcpSYN|tcpACK)))
		expectTales(t, "nobody asks", told(t, reader))
		syn(clients[1])
		expectTales(t, "the second one has its place", told(t, reader), tale{flow.Answered, true, clients[0], [2]uint64{1, 1}, ""})
		if err := p.d.Sessions.settleYoung(); err != nil {
			t.Fatal(err)
		}
		expectTales(t, "settled", told(t, reader), tale{flow.Opened, true, clients[1], [2]uint64{1, 0}, ""})
		p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, clients[1], tcpSYN|tcpACK)))
		expectTales(t, "answered afterwards", told(t, reader), tale{flow.Answered, false, clients[1], [2]uint64{1, 1}, bpfProgFromPod})

		p.allows(t, "RST", podSends(segmentOf(fromPod(), server, clients[1], tcpRST|tcpACK)))
		told(t, reader)
		p.takePlace(t, clients[2], server, 1)
		syn(clients[2])
		expectTales(t, "its place is taken", told(t, reader), tale{flow.Opened, true, clients[2], [2]uint64{1, 0}, bpfProgFromWire})
		p.takePlace(t, clients[2], server, 0)
		p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, clients[2], tcpSYN|tcpACK)))
		expectTales(t, "answered there", told(t, reader), tale{flow.Answered, false, clients[2], [2]uint64{1, 1}, bpfProgFromPod})
		restore()
		expectTales(t, "asked", told(t, reader))
		p.forget(t)
	})
}

// changePlace changes the place of a session.
func (p *policyRig) changePlace(t *testing.T, client, server netip.AddrPort, change func(*bpfCtNewEntry)) {
	t.Helper()
	index := youngIndex(sessionKeyOf(client, server, protoTCP))
	var y bpfCtNewEntry
	if err := p.d.objects.maps.CtNew.Lookup(index, &y); err != nil {
		t.Fatal(err)
	}
	change(&y)
	if err := p.d.objects.maps.CtNew.Put(index, y); err != nil {
		t.Fatal(err)
	}
}

// takePlace makes the place of a session look like one that somebody is about to change (1), or nobody (0).
func (p *policyRig) takePlace(t *testing.T, client, server netip.AddrPort, taken uint32) {
	t.Helper()
	p.changePlace(t, client, server, func(y *bpfCtNewEntry) { y.Lock = taken })
}

// Where another session with the same ends begins in the place of one that nobody has been told of, or policies end that, it is told of all the same.
func TestFlowsTellOfSessionsThatAreReplaced(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	reader := p.watch(t)
	eachFamily(t, func(t *testing.T, family int) {
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rules}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsEvery}))
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), client, server, tcpSYN)))
		p.allows(t, "SYN of the other end", podSends(segmentOf(fromPod(), server, client, tcpSYN)))
		expectTales(t, "both open it", told(t, reader),
			tale{flow.Opened, true, client, [2]uint64{1, 0}, ""}, tale{flow.Opened, true, server, [2]uint64{1, 0}, ""})
		p.forget(t)

		p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), client, server, tcpSYN)))
		p.ingress(t, map[policy.Identity]policy.Ports{idWorld: portsTCP80})
		p.denies(t, "data", wireBrings(segmentOf(fromWire(), client, server, tcpACK)), noIngress)
		events := told(t, reader)
		if len(events) == 0 || events[len(events)-1].Kind != flow.Dropped {
			t.Fatalf("events %+v", events)
		}
		expectTales(t, "revoked", events[:len(events)-1], tale{flow.Revoked, true, client, [2]uint64{1, 0}, bpfProgFromWire})
		p.forget(t)
	})
}

// What an earlier version has told the end of is not told of again, though it does not bear what says that it was told of.
func TestFlowsTellNothingAnewOfWhatIsOver(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	reader := p.watch(t)
	client, server := end{podB, 40000}.at(4), end{podA, 80}.at(4)
	p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), client, server, tcpSYN)))
	var untold bpfCtNewEntry
	p.changePlace(t, client, server, func(y *bpfCtNewEntry) { untold = *y })
	for _, flags := range []bpfCtFlag{bpfCtFlagCT_REPLIED | bpfCtFlagCT_RESET | bpfCtFlagCT_REPORTED_END, bpfCtFlagCT_REVOKED} {
		p.changePlace(t, client, server, func(y *bpfCtNewEntry) {
			*y = untold
			y.Entry.Flags |= uint32(flags)
		})
		expectTales(t, "asked", told(t, reader))
		if err := p.d.Sessions.settleYoung(); err != nil {
			t.Fatal(err)
		}
		expectTales(t, "settled", told(t, reader))
	}
}

// A connection of which the SYN|ACK is the first packet, and that finds its place taken, is reported as what its sender opened: nothing but
// the sender says that it answers.
func TestFlowsReportUnseenBeginnings(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	reader := p.watch(t)
	client, server := end{podB, 40000}.at(4), end{podA, 80}.at(4)
	p.takePlace(t, client, server, 1)
	p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, client, tcpSYN|tcpACK)))
	expectTales(t, "SYN|ACK", told(t, reader), tale{flow.Opened, true, server, [2]uint64{1, 0}, bpfProgFromPod})
}

// Who asks while packets begin and end sessions hears of each at least once, of its beginning first and at most once, and of its end last and once.
func TestFlowsTellUnderTraffic(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true, Flows: FlowsPolicy})
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	reader := p.watch(t)
	server := end{podA, 80}.at(4)
	const sessions = 2000
	done := make(chan error, 1)
	go func() {
		var err error
		p.stage.do(func() {
			for i := range uint16(sessions) {
				client := end{podB, 20000 + i}.at(4)
				for _, r := range []run{
					wireBrings(segmentOf(fromWire(), client, server, tcpSYN)), podSends(segmentOf(fromPod(), server, client, tcpSYN|tcpACK)),
					wireBrings(segmentOf(fromWire(), client, server, tcpFIN|tcpACK)), podSends(segmentOf(fromPod(), server, client, tcpFIN|tcpACK)),
				} {
					if _, err = p.run(r); err != nil {
						return
					}
				}
			}
		})
		done <- err
	}()
	type heard struct{ first, answered, closed int }
	all := map[netip.AddrPort]heard{}
	listen := func() {
		if err := reader.Read(time.Microsecond, func(e flow.Event) {
			h := all[e.Source]
			if e.First != (h == heard{}) {
				t.Errorf("%s: %s, the first: %t, after %+v", e.Source, e.Kind, e.First, h)
			}
			if e.First {
				h.first++
			}
			switch e.Kind {
			case flow.Answered:
				h.answered++
			case flow.Closed:
				h.closed++
			}
			all[e.Source] = h
		}); err != nil {
			t.Fatal(err)
		}
	}
	for over := false; !over; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			over = true
		default:
		}
		listen()
	}
	for client, h := range all {
		if h.first != 1 || h.answered > 1 || h.closed != 1 {
			t.Errorf("%s: %+v", client, h)
		}
	}
	if lost := p.lost(t); len(all) != sessions || len(lost) > 0 {
		t.Errorf("%d of %d sessions are told of, lost %v", len(all), sessions, lost)
	}
}
