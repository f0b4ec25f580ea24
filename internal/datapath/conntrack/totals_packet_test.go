package conntrack_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/flow"
	"github.com/beeline-cni/beeline/internal/policy"
)

// holdElsewhere puts a verdict cache that has counted these packets, of one byte each, on every CPU, and returns the
// number of CPUs. It replaces a flow cache entry, of which tests use few.
func holdElsewhere(p *harness.Policy, t *testing.T, slot uint32, from, to netip.AddrPort, packets uint64) (cpus uint64) {
	t.Helper()
	var all []bpf.FlowCacheEntry
	if err := p.D.Objects.Maps.FlowCache.Lookup(slot, &all); err != nil {
		t.Fatal(err)
	}
	for i := range all {
		d := bpf.FlowCacheEntry{Destination: bpf.AddressOf(to.Addr())}
		d.Verdict.Sender, d.Verdict.SenderPort, d.Verdict.DestinationPort = bpf.AddressOf(from.Addr()), bpf.NetworkOrder(from.Port()), bpf.NetworkOrder(to.Port())
		d.Verdict.Protocol, d.Verdict.Packets, d.Verdict.Bytes = fixtures.ProtoTCP, packets, packets
		all[i] = d
	}
	if err := p.D.Objects.Maps.FlowCache.Put(slot, all); err != nil {
		t.Fatal(err)
	}
	return uint64(len(all))
}

// Totals include what other CPUs hold of a connection, and packets after its end was reported.
func TestFlowsReportAllCounts(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	reader := p.Watch(t)
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		there := func(flags byte) {
			p.Allows(t, "there", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, flags)))
		}
		back := func(flags byte) {
			p.Allows(t, "back", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, flags)))
		}
		there(fixtures.TcpSYN)
		back(fixtures.TcpSYN | fixtures.TcpACK)
		there(fixtures.TcpFIN | fixtures.TcpACK)
		back(fixtures.TcpFIN | fixtures.TcpACK)
		there(fixtures.TcpACK)
		cpus := holdElsewhere(p, t, 1, client, server, 10)
		holdElsewhere(p, t, 2, server, client, 100)
		holdElsewhere(p, t, 3, client, harness.End{Member: fixtures.PodA, Port: 81}.At(family), 1000) // another connection's

		events := harness.ReadEvents(t, reader)
		p.D.Conntrack.SetHeldAt(time.Time{})
		if err := p.D.Conntrack.Complete(events); err != nil {
			t.Fatal(err)
		}
		size := uint64(len(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK).Bytes()))
		closed := events[len(events)-1] // the only one
		if want := [2]uint64{3 + 10*cpus, 2 + 100*cpus}; closed.Kind != flow.KindClosed || closed.Packets != want {
			t.Errorf("%s with %d packets, expected %d", closed.Kind, closed.Packets, want)
		}
		if want := [2]uint64{3*size + 10*cpus, 2*size + 100*cpus}; closed.Bytes != want {
			t.Errorf("%d bytes, expected %d", closed.Bytes, want)
		}

		// Not so often: then from the entry alone, mostly without the last ACK, which a verdict cache has counted.
		again := []flow.Event{closed}
		again[0].Packets = [2]uint64{1, 1}
		p.D.Conntrack.SetHeldAt(time.Now().Add(time.Hour))
		if err := p.D.Conntrack.Complete(again); err != nil || again[0].Packets[0]|1 != 3 || again[0].Packets[1] != 2 {
			t.Errorf("%d packets: %v", again[0].Packets, err)
		}
		// Another connection with the same ends is not the reported one.
		again[0].Packets = [2]uint64{9, 9}
		if err := p.D.Conntrack.Complete(again); err != nil || again[0].Packets != [2]uint64{9, 9} {
			t.Errorf("%d packets: %v", again[0].Packets, err)
		}

		var expired []conntrack.Entry
		now, err := table.Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		if _, err := p.D.Conntrack.Expire(now+time.Hour, func(conntrack.Entry) { seen++ }, func(s conntrack.Entry) { expired = append(expired, s) }); err != nil {
			t.Fatal(err)
		}
		if want := [2]uint64{3 + 10*cpus, 2 + 100*cpus}; seen != 1 || len(expired) != 1 || expired[0].Packets != want || expired[0].Source != client {
			t.Errorf("%d are seen, expired %+v, expected %d packets", seen, expired, want)
		}
		for slot := range uint32(4) {
			holdElsewhere(p, t, slot, client, server, 0)
		}
	})
}

// The key of an entry and its index in `ct_new` are the datapath's, whichever end is the initiator.
func TestEntryKey(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Flows: config.FlowsPolicy})
	p.Egress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery})
	harness.EachFamily(t, func(t *testing.T, family int) {
		for _, ports := range [][2]uint16{{40000, 80}, {80, 40000}, {256, 1}, {7, 7}} {
			client, server := harness.End{Member: fixtures.PodB, Port: ports[0]}.At(family), harness.End{Member: fixtures.PodA, Port: ports[1]}.At(family)
			p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN)))
			for _, e := range []flow.Event{{Source: client, Destination: server, Protocol: fixtures.ProtoTCP}, {Source: server, Destination: client, Protocol: fixtures.ProtoTCP}} {
				for _, where := range []string{"new", "flushed"} {
					if v, err := p.D.Conntrack.FindOf(&e); v == nil || v.Packets != [2]uint64{1, 0} || err != nil {
						t.Errorf("%s to %s, %s: %+v, %v", e.Source, e.Destination, where, v, err)
					}
					if err := p.D.Conntrack.Flush(); err != nil {
						t.Fatal(err)
					}
				}
			}
			p.ClearVerdicts(t)
		}
	})
}
