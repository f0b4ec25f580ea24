package conntrack_test

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/policy"
)

// An entry of `ct_new` that another one evicts, or that is flushed, keeps its state and counts: replies, which only
// it allows, still pass.
func TestNewEntriesMove(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP}))
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.ClearVerdicts(t)
		server := harness.End{Member: fixtures.PodA, Port: 53}.At(family)
		clients := harness.SameSlot(t, server, fixtures.ProtoUDP, 3)
		query := func(c netip.AddrPort) harness.Run {
			return harness.WireBrings(harness.Datagram(fixtures.FromWire(), c, server))
		}
		reply := func(c netip.AddrPort) harness.Run {
			return harness.PodSends(harness.Datagram(fixtures.FromPod(), server, c))
		}
		p.Denies(t, "a reply to nothing", reply(clients[0]), harness.NoEgress)
		for _, c := range clients {
			p.Allows(t, "query", query(c))
			p.Allows(t, "reply", reply(c))
		}
		for range 2 {
			for _, c := range clients {
				p.Allows(t, "a reply afterwards", reply(c))
			}
			if err := p.D.Conntrack.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.D.Objects.Generation.Advance(); err != nil { // flush the flow cache, and with it the verdict caches
			t.Fatal(err)
		}
		for _, c := range clients {
			p.Allows(t, "query", query(c))
			p.Allows(t, "reply", reply(c))
		}
		all := p.Entries(t)
		if len(all) != len(clients) {
			t.Fatalf("%d entries of %d clients: %+v", len(all), len(clients), all)
		}
		for _, s := range all {
			// The last datagrams of each direction are counted in a verdict cache, or in the entry already.
			if s.Packets[0] < 1 || s.Packets[0] > 2 || s.Packets[1] < 3 || s.Packets[1] > 4 {
				t.Errorf("entry of %s: packets %v", s.Source, s.Packets)
			}
		}
	})
}

// A new connection replaces a closed one in `ct_new`, and the closed one is not kept.
func TestNewEntriesEnd(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.ClearVerdicts(t)
		server := harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		clients := harness.SameSlot(t, server, fixtures.ProtoTCP, 2)
		for _, c := range clients {
			p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), c, server, fixtures.TcpSYN)))
			p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, c, fixtures.TcpSYN|fixtures.TcpACK)))
			p.Allows(t, "FIN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), c, server, fixtures.TcpFIN|fixtures.TcpACK)))
			p.Allows(t, "FIN back", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, c, fixtures.TcpFIN|fixtures.TcpACK)))
		}
		if all := p.Entries(t); len(all) != 1 || all[0].Source != clients[1] || all[0].State != conntrack.StateClosed {
			t.Errorf("entries %+v, expected a closed one of %s", all, clients[1])
		}
	})
}

// A SYN on the ports of an older connection with replies starts a new one, whichever map has the old entry: there is
// one entry, with counts from zero.
func TestNewEntriesAgain(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	harness.EachFamily(t, func(t *testing.T, family int) {
		for i, ended := range []bool{true, false} {
			p.ClearVerdicts(t)
			client, server := harness.End{Member: fixtures.PodB, Port: 40000 + uint16(i)}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family) // in different slots
			syn := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpSYN))
			p.Allows(t, "SYN", syn)
			p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpSYN|fixtures.TcpACK)))
			if ended {
				p.Allows(t, "RST", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpRST|fixtures.TcpACK)))
			}
			if err := p.D.Conntrack.Flush(); err != nil {
				t.Fatal(err)
			}
			p.Allows(t, "SYN", syn)
			if all := p.Entries(t); len(all) != 1 || all[0].Packets != [2]uint64{1, 0} || all[0].State != conntrack.StateNew {
				t.Errorf("after a closed connection (%t): entries %+v", ended, all)
			}
		}
	})
}

// A retransmitted SYN belongs to the same connection, whichever map has its entry.
func TestNewEntriesWait(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.ClearVerdicts(t)
		server := harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		clients := harness.SameSlot(t, server, fixtures.ProtoTCP, 2)
		syn := func(c netip.AddrPort) harness.Run {
			return harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), c, server, fixtures.TcpSYN))
		}
		for _, c := range clients {
			p.Allows(t, "SYN", syn(c))
		}
		p.Allows(t, "SYN again", syn(clients[0]))
		if err := p.D.Conntrack.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, c := range clients {
			p.Allows(t, "SYN again", syn(c))
		}
		all := p.Entries(t)
		counts := map[netip.AddrPort][2]uint64{}
		for _, s := range all {
			counts[s.Source] = s.Packets
		}
		if len(all) != 2 || counts[clients[0]] != [2]uint64{3, 0} || counts[clients[1]] != [2]uint64{2, 0} {
			t.Errorf("entries %+v, expected one of each client with all its packets", all)
		}
	})
}

// A TCP segment without SYN or data is evaluated and creates no entry: its connection may be closed, with its entry
// expired.
func TestBareSegmentsCreateNoEntry(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		for _, c := range []struct {
			name    string
			flags   byte
			data    string
			padded  bool // padded to the minimum length of an Ethernet frame
			creates int
		}{
			{name: "ACK", flags: fixtures.TcpACK},
			{name: "ACK in a padded frame", flags: fixtures.TcpACK, padded: true},
			{name: "FIN", flags: fixtures.TcpFIN | fixtures.TcpACK},
			{name: "SYN and ACK", flags: fixtures.TcpSYN | fixtures.TcpACK, creates: 1},
			{name: "data", flags: fixtures.TcpACK, data: "!", creates: 1},
			{name: "FIN with data", flags: fixtures.TcpFIN | fixtures.TcpACK, data: "!", creates: 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
				p.ClearVerdicts(t)
				client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
				in := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, c.flags).Payload(c.data))
				if c.flags&fixtures.TcpSYN != 0 {
					in = harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, c.flags).Payload(c.data))
				}
				if c.padded {
					in.In = append(in.In, make([]byte, 6)...)
				}
				p.Allows(t, "allowed", in)
				if n := len(p.Entries(t)); n != c.creates {
					t.Errorf("%d entries, expected %d", n, c.creates)
				}
				if c.creates == 0 {
					p.Allows(t, "data afterwards", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK)))
					if n := len(p.Entries(t)); n != 1 {
						t.Errorf("%d entries after data, expected one", n)
					}
					p.Ingress(t, map[policy.Identity]policy.Ports{})
					p.Denies(t, "denied", in, harness.NoIngress)
				}
			})
		}
	})
}

// Each packet finds its entry while `ct_new` is flushed concurrently.
func TestFlushUnderTraffic(t *testing.T) {
	const clients = 2000
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP}))
	var stop atomic.Bool
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for !stop.Load() {
			if err := p.D.Conntrack.Flush(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	server := harness.End{Member: fixtures.PodA, Port: 53}.At(4)
	for i := range uint16(clients) {
		client := harness.End{Member: fixtures.PodB, Port: 20000 + i}.At(4)
		p.Allows(t, "query", harness.WireBrings(harness.Datagram(fixtures.FromWire(), client, server)))
		p.Allows(t, "reply", harness.PodSends(harness.Datagram(fixtures.FromPod(), server, client)))
		runtime.Gosched() // lets the flusher run on a single CPU
	}
	stop.Store(true)
	flushing.Wait()
	if n := len(p.Entries(t)); n != clients {
		t.Errorf("%d entries of %d clients", n, clients)
	}
}
