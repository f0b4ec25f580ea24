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

// summary is the part of an event that these tests check.
type summary struct {
	kind    flow.Kind
	first   bool
	source  netip.AddrPort
	packets [2]uint64
	program string
}

func summaries(events []flow.Event) (all []summary) {
	for _, e := range events {
		all = append(all, summary{e.Kind, e.First, e.Source, e.Packets, e.Program})
	}
	return all
}

func expectEvents(t *testing.T, what string, events []flow.Event, want ...summary) {
	t.Helper()
	if diff := cmp.Diff(want, summaries(events), cmp.AllowUnexported(summary{}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("%s (-expected +got):\n%s", what, diff)
	}
}

// A connection that ends before the reporter runs is reported once, completely; one that has a reply by then is
// reported once, too.
func TestFlowsReportShortConnectionsOnce(t *testing.T) {
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
		events := harness.ReadEvents(t, reader)
		expectEvents(t, "after the reporter", events,
			summary{flow.KindClosed, true, client, [2]uint64{2, 2}, bpf.ProgFromPod}, summary{flow.KindReplied, true, lasting, [2]uint64{1, 1}, ""})
		if len(events) > 0 && (events[0].Ingress != harness.ThePolicy || events[0].SourceIdentity != harness.IdB || events[0].DestinationIdentity != harness.IdA) {
			t.Errorf("event %+v", events[0])
		}
		p.Allows(t, "FIN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), lasting, server, fixtures.TcpFIN|fixtures.TcpACK)))
		expectEvents(t, "after the reporter again", harness.ReadEvents(t, reader))
		p.Allows(t, "RST", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), lasting, server, fixtures.TcpRST|fixtures.TcpACK)))
		expectEvents(t, "reset", harness.ReadEvents(t, reader), summary{flow.KindClosed, false, lasting, [2]uint64{3, 1}, bpf.ProgFromWire})
		p.ClearVerdicts(t)
	})
}

// A connection whose entry leaves `ct_new` is reported then, without the reporter, and so is one that starts in
// `conntrack`.
func TestFlowsReportMovedConnections(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		server := harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		clients := harness.SameSlot(t, server, fixtures.ProtoTCP, 3)
		syn := func(c netip.AddrPort) {
			p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), c, server, fixtures.TcpSYN)))
		}
		restore := reader.Silence()
		syn(clients[0])
		p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, clients[0], fixtures.TcpSYN|fixtures.TcpACK)))
		expectEvents(t, "without the reporter", harness.ReadEvents(t, reader))
		syn(clients[1])
		expectEvents(t, "the second one has its slot", harness.ReadEvents(t, reader), summary{flow.KindReplied, true, clients[0], [2]uint64{1, 1}, ""})
		if err := p.D.Conntrack.Flush(); err != nil {
			t.Fatal(err)
		}
		expectEvents(t, "flushed", harness.ReadEvents(t, reader), summary{flow.KindNew, true, clients[1], [2]uint64{1, 0}, ""})
		p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, clients[1], fixtures.TcpSYN|fixtures.TcpACK)))
		expectEvents(t, "replied afterwards", harness.ReadEvents(t, reader), summary{flow.KindReplied, false, clients[1], [2]uint64{1, 1}, bpf.ProgFromPod})

		p.Allows(t, "RST", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, clients[1], fixtures.TcpRST|fixtures.TcpACK)))
		harness.ReadEvents(t, reader)
		lockSlot(p, t, clients[2], server, 1)
		syn(clients[2])
		expectEvents(t, "its slot is locked", harness.ReadEvents(t, reader), summary{flow.KindNew, true, clients[2], [2]uint64{1, 0}, bpf.ProgFromWire})
		lockSlot(p, t, clients[2], server, 0)
		p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, clients[2], fixtures.TcpSYN|fixtures.TcpACK)))
		expectEvents(t, "replied in conntrack", harness.ReadEvents(t, reader), summary{flow.KindReplied, false, clients[2], [2]uint64{1, 1}, bpf.ProgFromPod})
		restore()
		expectEvents(t, "after the reporter", harness.ReadEvents(t, reader))
		p.ClearVerdicts(t)
	})
}

// changeSlot changes an entry of `ct_new`.
func changeSlot(p *harness.Policy, t *testing.T, client, server netip.AddrPort, change func(*bpf.CtNewEntry)) {
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

// lockSlot locks (1) or unlocks (0) a slot of `ct_new`, as a CPU that changes it does.
func lockSlot(p *harness.Policy, t *testing.T, client, server netip.AddrPort, lock uint32) {
	t.Helper()
	changeSlot(p, t, client, server, func(y *bpf.CtNewEntry) { y.Lock = lock })
}

// A connection that was not reported yet is reported if another one with the same ends replaces it or if policies
// revoke it.
func TestFlowsReportReplacedConnections(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.Rules}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
		p.Allows(t, "SYN of the other end", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN)))
		expectEvents(t, "both initiate", harness.ReadEvents(t, reader),
			summary{flow.KindNew, true, client, [2]uint64{1, 0}, ""}, summary{flow.KindNew, true, server, [2]uint64{1, 0}, ""})
		p.ClearVerdicts(t)

		p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsTCP80})
		p.Denies(t, "data", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK)), harness.NoIngress)
		events := harness.ReadEvents(t, reader)
		if len(events) == 0 || events[len(events)-1].Kind != flow.KindDropped {
			t.Fatalf("events %+v", events)
		}
		expectEvents(t, "revoked", events[:len(events)-1], summary{flow.KindRevoked, true, client, [2]uint64{1, 0}, bpf.ProgFromWire})
		p.ClearVerdicts(t)
	})
}

// A connection whose end an earlier version has reported is not reported again, although it has no mark that its
// start was.
func TestFlowsReportNoEndedConnectionAgain(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	reader := p.Watch(t)
	client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4)
	p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
	var unreported bpf.CtNewEntry
	changeSlot(p, t, client, server, func(y *bpf.CtNewEntry) { unreported = *y })
	for _, flags := range []bpf.CtFlag{bpf.CtFlagCT_REPLIED | bpf.CtFlagCT_RESET | bpf.CtFlagCT_REPORTED_END, bpf.CtFlagCT_REVOKED} {
		changeSlot(p, t, client, server, func(y *bpf.CtNewEntry) {
			*y = unreported
			y.Entry.Flags |= uint32(flags)
		})
		expectEvents(t, "after the reporter", harness.ReadEvents(t, reader))
		if err := p.D.Conntrack.Flush(); err != nil {
			t.Fatal(err)
		}
		expectEvents(t, "flushed", harness.ReadEvents(t, reader))
	}
}

// A connection whose first packet is the SYN|ACK, and whose slot is locked, is reported with the sender as initiator:
// no state says that it replies.
func TestFlowsReportUnseenBeginnings(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	reader := p.Watch(t)
	client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4)
	lockSlot(p, t, client, server, 1)
	p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN|fixtures.TcpACK)))
	expectEvents(t, "SYN|ACK", harness.ReadEvents(t, reader), summary{flow.KindNew, true, server, [2]uint64{1, 0}, bpf.ProgFromPod})
}

// A reader that runs during traffic gets at least one event of each connection, its start first and at most once, and
// its end last and once.
func TestFlowsReportUnderTraffic(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	reader := p.Watch(t)
	server := harness.End{Member: fixtures.PodA, Port: 80}.At(4)
	const connections = 2000
	done := make(chan error, 1)
	go func() {
		var err error
		p.Netns.Do(func() {
			for i := range uint16(connections) {
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
	type counts struct{ first, answered, closed int }
	all := map[netip.AddrPort]counts{}
	read := func() {
		if err := reader.Read(time.Microsecond, func(e flow.Event) {
			h := all[e.Source]
			if e.First != (h == counts{}) {
				t.Errorf("%s: %s, the first: %t, after %+v", e.Source, e.Kind, e.First, h)
			}
			if e.First {
				h.first++
			}
			switch e.Kind {
			case flow.KindReplied:
				h.answered++
			case flow.KindClosed:
				h.closed++
			}
			all[e.Source] = h
		}); err != nil {
			t.Fatal(err)
		}
	}
	for finished := false; !finished; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			finished = true
		default:
		}
		read()
	}
	for client, h := range all {
		if h.first != 1 || h.answered > 1 || h.closed != 1 {
			t.Errorf("%s: %+v", client, h)
		}
	}
	if lost := lost(p.Harness, t); len(all) != connections || len(lost) > 0 {
		t.Errorf("%d of %d connections are reported, lost %v", len(all), connections, lost)
	}
}
