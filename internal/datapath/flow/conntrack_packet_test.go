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

// Each connection is reported when it starts, when it has a reply and when it ends, once each, in the initiator's
// direction and with the policies that allow it.
func TestFlowsReportConnections(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		syn, ack := harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN), harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN|fixtures.TcpACK)
		size := uint64(len(syn.Bytes()))
		event := func(kind flow.Kind, program, device string, flags uint8, there, back uint64) flow.Event {
			return flow.Event{
				Kind: kind, Protocol: fixtures.ProtoTCP, TCPFlags: flags, Source: client, Destination: server,
				SourceIdentity: harness.IdB, DestinationIdentity: harness.IdA, Ingress: harness.ThePolicy, Program: program, Device: p.Netns.Devices[device],
				Packets: [2]uint64{there, back}, Bytes: [2]uint64{there * size, back * size},
			}
		}
		began := time.Now()
		expect := func(what string, want ...flow.Event) {
			t.Helper()
			got := harness.ReadEvents(t, reader)
			for i := range got {
				// A tick of the clock is 10 ms at most, but emulated machines miss some.
				if opened := got[i].Created; opened.Before(began.Add(-time.Second)) || opened.After(got[i].Time) {
					t.Errorf("%s: opened at %s, before %s or after %s", what, opened, began, got[i].Time)
				}
				got[i].Created = time.Time{}
			}
			if diff := cmp.Diff(want, got, fixtures.IgnoreMeaning); diff != "" {
				t.Errorf("%s (-expected +got):\n%s", what, diff)
			}
		}
		p.Allows(t, "SYN", harness.WireBrings(syn))
		first := event(flow.KindNew, "", "", 0, 1, 0)
		first.First = true
		expect("SYN", first)
		p.Allows(t, "SYN again", harness.WireBrings(syn))
		expect("SYN again")
		p.Allows(t, "SYN ACK", harness.PodSends(ack))
		expect("SYN ACK", event(flow.KindReplied, bpf.ProgFromPod, "blpoda", fixtures.TcpSYN|fixtures.TcpACK, 2, 1))
		for range 10 {
			p.Allows(t, "data", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK)))
			p.Allows(t, "data back", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpACK)))
		}
		expect("data")
		p.Allows(t, "FIN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpFIN|fixtures.TcpACK)))
		expect("FIN")
		p.Allows(t, "FIN back", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpFIN|fixtures.TcpACK)))
		expect("FIN back", event(flow.KindClosed, bpf.ProgFromPod, "blpoda", fixtures.TcpFIN|fixtures.TcpACK, 13, 12))
		p.Allows(t, "the last ACK", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK)))
		expect("the last ACK")
		p.ClearVerdicts(t)
	})
}

// A connection that is no longer allowed is reported as revoked once, then as drops, with the identities of both
// ends.
func TestFlowsReportRevoked(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4)
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdExternal: harness.PortsTCP80})
	harness.ReadEvents(t, reader)
	data, began := harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK), time.Now()
	for range 3 {
		p.Denies(t, "data", harness.WireBrings(data), harness.NoIngress)
	}
	got := harness.ReadEvents(t, reader)
	// One drop event, plus one for each second that has passed meanwhile.
	if len(got) < 2 || len(got) > 2+int(time.Since(began)/time.Second) || got[0].Kind != flow.KindRevoked || got[1].Kind != flow.KindDropped {
		t.Fatalf("events %+v, expected one revocation and one drop", got)
	}
	if e := got[0]; e.Source != client || e.Destination != server || e.Packets[0] == 0 {
		t.Errorf("event %+v", e)
	}
	if e := got[1]; e.Reason != "ingress_policy" || e.SourceIdentity != harness.IdB || e.DestinationIdentity != harness.IdA || e.Source != client || e.Destination != server {
		t.Errorf("event %+v", e)
	}
}

// In modes that report less, connections are evaluated but not reported.
func TestFlowsReportDropsOnly(t *testing.T) {
	for _, mode := range []config.FlowMode{config.FlowsDrops, config.FlowsOff} {
		p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: mode})
		reader := p.Watch(t)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 1}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4), fixtures.TcpSYN)))
		p.Denies(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 1}.At(4), harness.End{Member: fixtures.PodA, Port: 81}.At(4), fixtures.TcpSYN)), harness.NoIngress)
		want := 0
		if mode == config.FlowsDrops {
			want = 1
		}
		if got := harness.ReadEvents(t, reader); len(got) != want || want > 0 && got[0].Kind != flow.KindDropped {
			t.Errorf("mode %d: events %+v, expected %d", mode, got, want)
		}
	}
}

// Connections of pods that no policy selects are reported in mode all.
func TestFlowsReportAll(t *testing.T) {
	for _, cfg := range []config.Datapath{{Policy: true}, {}} {
		cfg.EBPFRouting, cfg.Flows = true, config.FlowsAll
		r := harness.New(t, cfg)
		reader := r.Watch(t)
		p := &harness.Policy{Harness: r}
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4)
		p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
		p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN|fixtures.TcpACK)))
		got := harness.ReadEvents(t, reader)
		if len(got) != 1 || got[0].Kind != flow.KindReplied || !got[0].First || got[0].Source != client || got[0].Ingress != 0 {
			t.Errorf("%s: events %+v", fixtures.CfgName(cfg), got)
		}
	}
}

// With sampling, a connection is reported completely or not at all, and the agent knows which.
func TestFlowsSample(t *testing.T) {
	// The sample depends on clock ticks: their length is not a multiple of 3, and there are many.
	const sample, connections = 3, 200
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy, FlowsSample: sample})
	reader := p.Watch(t)
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	server := harness.End{Member: fixtures.PodA, Port: 80}.At(4)
	for i := range uint16(connections) {
		client := harness.End{Member: fixtures.PodB, Port: 40000 + i}.At(4)
		if i%5 == 0 {
			fixtures.AwaitTick(t)
		}
		p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
		p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN|fixtures.TcpACK)))
		if i%2 == 0 {
			p.Allows(t, "RST", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpRST|fixtures.TcpACK)))
		}
	}
	events := map[netip.AddrPort]int{}
	count := func() {
		for _, e := range harness.ReadEvents(t, reader) {
			events[e.Source]++
		}
	}
	count()
	for i := uint16(1); i < connections; i += 2 { // the end of the open ones is reported, too
		p.Allows(t, "RST", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 40000 + i}.At(4), server, fixtures.TcpRST|fixtures.TcpACK)))
	}
	count()
	reported := 0
	ticks := map[time.Duration][2]int{} // per clock tick: started and reported connections
	for _, s := range p.Entries(t) {
		want := 0
		if p.D.Events.Samples(s) {
			want = 1 + int(s.Source.Port()%2)
			reported++
		}
		ticks[s.Created] = [2]int{ticks[s.Created][0] + 1, ticks[s.Created][1] + min(want, 1)}
		if events[s.Source] != want {
			t.Errorf("%d events of the connection of %s, created at %d, expected %d", events[s.Source], s.Source, s.Created, want)
		}
	}
	if reported == 0 || reported == connections {
		t.Errorf("%d of %d connections are reported", reported, connections)
	}
	together, mixed := 0, false
	for _, n := range ticks {
		if n[0] > 1 {
			together += n[0]
			mixed = mixed || n[1] > 0 && n[1] < n[0]
		}
	}
	if together > connections/2 && !mixed {
		t.Errorf("of %d connections that started together all or none are reported: %v", together, ticks)
	}
}

// Without a reader connections start and end as usual, and lost events are counted.
func TestConnectionsWithoutReader(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	const connections = 10000
	var got harness.Outcome
	var err error
	p.Netns.Do(func() {
		for i := range uint16(connections) {
			got, err = p.Run(harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 20000 + i}.At(4), harness.End{Member: fixtures.PodA, Port: 80}.At(4), fixtures.TcpSYN)))
			if err != nil || got.Verdict != harness.VerdictRedirect {
				return
			}
		}
	})
	if err != nil || got.Verdict != harness.VerdictRedirect {
		t.Fatalf("verdict %v: %v", got.Verdict, err)
	}
	events := uint64(len(harness.ReadEvents(t, p.Watch(t))))
	if lost := lost(p.Harness, t)["new full"]; lost == 0 || events+lost != connections {
		t.Errorf("%d events and %d lost of %d connections", events, lost, connections)
	}
}
