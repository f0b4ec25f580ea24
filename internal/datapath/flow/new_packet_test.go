package flow_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
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
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		client, lasting, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 40001}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		for _, c := range []netip.AddrPort{client, lasting} {
			p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), c, server, fixtures.TcpSYN)))
			p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, c, fixtures.TcpSYN|fixtures.TcpACK)))
		}
		p.Allows(t, "FIN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpFIN|fixtures.TcpACK)))
		p.Allows(t, "FIN back", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpFIN|fixtures.TcpACK)))
		events := harness.Told(t, reader)
		expectTales(t, "asked", events,
			tale{flow.Closed, true, client, [2]uint64{2, 2}, bpf.ProgFromPod}, tale{flow.Answered, true, lasting, [2]uint64{1, 1}, ""})
		if len(events) > 0 && (events[0].Ingress != harness.ThePolicy || events[0].SourceIdentity != harness.IdB || events[0].DestinationIdentity != harness.IdA) {
			t.Errorf("event %+v", events[0])
		}
		p.Allows(t, "FIN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), lasting, server, fixtures.TcpFIN|fixtures.TcpACK)))
		expectTales(t, "asked again", harness.Told(t, reader))
		p.Allows(t, "RST", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), lasting, server, fixtures.TcpRST|fixtures.TcpACK)))
		expectTales(t, "reset", harness.Told(t, reader), tale{flow.Closed, false, lasting, [2]uint64{3, 1}, bpf.ProgFromWire})
		p.Forget(t)
	})
}

// A session that leaves its place is told of then, without being asked, and so is one that begins elsewhere.
func TestFlowsTellOfSessionsThatMove(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		server := harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		clients := harness.OnePlace(t, server, fixtures.ProtoTCP, 3)
		syn := func(c netip.AddrPort) {
			p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), c, server, fixtures.TcpSYN)))
		}
		restore := reader.Silence()
		syn(clients[0])
		p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, clients[0], fixtures.TcpSYN|fixtures.TcpACK)))
		expectTales(t, "nobody asks", harness.Told(t, reader))
		syn(clients[1])
		expectTales(t, "the second one has its place", harness.Told(t, reader), tale{flow.Answered, true, clients[0], [2]uint64{1, 1}, ""})
		if err := p.D.Conntrack.Flush(); err != nil {
			t.Fatal(err)
		}
		expectTales(t, "settled", harness.Told(t, reader), tale{flow.Opened, true, clients[1], [2]uint64{1, 0}, ""})
		p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, clients[1], fixtures.TcpSYN|fixtures.TcpACK)))
		expectTales(t, "answered afterwards", harness.Told(t, reader), tale{flow.Answered, false, clients[1], [2]uint64{1, 1}, bpf.ProgFromPod})

		p.Allows(t, "RST", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, clients[1], fixtures.TcpRST|fixtures.TcpACK)))
		harness.Told(t, reader)
		takePlace(p, t, clients[2], server, 1)
		syn(clients[2])
		expectTales(t, "its place is taken", harness.Told(t, reader), tale{flow.Opened, true, clients[2], [2]uint64{1, 0}, bpf.ProgFromWire})
		takePlace(p, t, clients[2], server, 0)
		p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, clients[2], fixtures.TcpSYN|fixtures.TcpACK)))
		expectTales(t, "answered there", harness.Told(t, reader), tale{flow.Answered, false, clients[2], [2]uint64{1, 1}, bpf.ProgFromPod})
		restore()
		expectTales(t, "asked", harness.Told(t, reader))
		p.Forget(t)
	})
}

// changePlace changes the place of a session.
func changePlace(p *harness.Policy, t *testing.T, client, server netip.AddrPort, change func(*bpf.CtNewEntry)) {
	t.Helper()
	index := bpf.ConntrackNewIndex(harness.KeyOf(client, server, fixtures.ProtoTCP))
	var y bpf.CtNewEntry
	if err := p.D.Objects.Maps.CtNew.Lookup(index, &y); err != nil {
		t.Fatal(err)
	}
	change(&y)
	if err := p.D.Objects.Maps.CtNew.Put(index, y); err != nil {
		t.Fatal(err)
	}
}

// takePlace makes the place of a session look like one that somebody is about to change (1), or nobody (0).
func takePlace(p *harness.Policy, t *testing.T, client, server netip.AddrPort, taken uint32) {
	t.Helper()
	changePlace(p, t, client, server, func(y *bpf.CtNewEntry) { y.Lock = taken })
}

// Where another session with the same ends begins in the place of one that nobody has been told of, or policies end that, it is told of all the same.
func TestFlowsTellOfSessionsThatAreReplaced(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.Rules}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
		p.Allows(t, "SYN of the other end", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN)))
		expectTales(t, "both open it", harness.Told(t, reader),
			tale{flow.Opened, true, client, [2]uint64{1, 0}, ""}, tale{flow.Opened, true, server, [2]uint64{1, 0}, ""})
		p.Forget(t)

		p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdWorld: harness.PortsTCP80})
		p.Denies(t, "data", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK)), harness.NoIngress)
		events := harness.Told(t, reader)
		if len(events) == 0 || events[len(events)-1].Kind != flow.Dropped {
			t.Fatalf("events %+v", events)
		}
		expectTales(t, "revoked", events[:len(events)-1], tale{flow.Revoked, true, client, [2]uint64{1, 0}, bpf.ProgFromWire})
		p.Forget(t)
	})
}

// What an earlier version has told the end of is not told of again, though it does not bear what says that it was told of.
func TestFlowsTellNothingAnewOfWhatIsOver(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	reader := p.Watch(t)
	client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4)
	p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
	var untold bpf.CtNewEntry
	changePlace(p, t, client, server, func(y *bpf.CtNewEntry) { untold = *y })
	for _, flags := range []bpf.CtFlag{bpf.CtFlagCT_REPLIED | bpf.CtFlagCT_RESET | bpf.CtFlagCT_REPORTED_END, bpf.CtFlagCT_REVOKED} {
		changePlace(p, t, client, server, func(y *bpf.CtNewEntry) {
			*y = untold
			y.Entry.Flags |= uint32(flags)
		})
		expectTales(t, "asked", harness.Told(t, reader))
		if err := p.D.Conntrack.Flush(); err != nil {
			t.Fatal(err)
		}
		expectTales(t, "settled", harness.Told(t, reader))
	}
}

// A connection of which the SYN|ACK is the first packet, and that finds its place taken, is reported as what its sender opened: nothing but
// the sender says that it answers.
func TestFlowsReportUnseenBeginnings(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	reader := p.Watch(t)
	client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4)
	takePlace(p, t, client, server, 1)
	p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN|fixtures.TcpACK)))
	expectTales(t, "SYN|ACK", harness.Told(t, reader), tale{flow.Opened, true, server, [2]uint64{1, 0}, bpf.ProgFromPod})
}

// Who asks while packets begin and end sessions hears of each at least once, of its beginning first and at most once, and of its end last and once.
func TestFlowsTellUnderTraffic(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	reader := p.Watch(t)
	server := harness.End{Member: fixtures.PodA, Port: 80}.At(4)
	const sessions = 2000
	done := make(chan error, 1)
	go func() {
		var err error
		p.Netns.Do(func() {
			for i := range uint16(sessions) {
				client := harness.End{Member: fixtures.PodB, Port: 20000 + i}.At(4)
				for _, r := range []harness.Run{
					harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)), harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN|fixtures.TcpACK)),
					harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpFIN|fixtures.TcpACK)), harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpFIN|fixtures.TcpACK)),
				} {
					if _, err = p.Run(r); err != nil {
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
	if lost := lost(p.Harness, t); len(all) != sessions || len(lost) > 0 {
		t.Errorf("%d of %d sessions are told of, lost %v", len(all), sessions, lost)
	}
}
