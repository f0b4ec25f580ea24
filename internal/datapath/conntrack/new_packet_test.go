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

// Who takes the place of a session that is not over forgets nothing of it, nor does settling: its answers, which no rule allows by
// itself, go on, and all of its packets count.
func TestYoungSessionsMove(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP}))
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Forget(t)
		server := harness.End{Member: fixtures.PodA, Port: 53}.At(family)
		clients := harness.OnePlace(t, server, fixtures.ProtoUDP, 3)
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
		if err := p.D.Objects.Generation.Advance(); err != nil { // permits end with the decisions
			t.Fatal(err)
		}
		for _, c := range clients {
			p.Allows(t, "query", query(c))
			p.Allows(t, "reply", reply(c))
		}
		all := p.Entries(t)
		if len(all) != len(clients) {
			t.Fatalf("%d sessions of %d clients: %+v", len(all), len(clients), all)
		}
		for _, s := range all {
			// The last datagrams of each direction are with a permit, or counted already.
			if s.Packets[0] < 1 || s.Packets[0] > 2 || s.Packets[1] < 3 || s.Packets[1] > 4 {
				t.Errorf("session of %s: packets %v", s.Source, s.Packets)
			}
		}
	})
}

// One that is over leaves its place to the next one and is kept nowhere.
func TestYoungSessionsEnd(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Forget(t)
		server := harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		clients := harness.OnePlace(t, server, fixtures.ProtoTCP, 2)
		for _, c := range clients {
			p.Allows(t, "SYN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), c, server, fixtures.TcpSYN)))
			p.Allows(t, "SYN ACK", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, c, fixtures.TcpSYN|fixtures.TcpACK)))
			p.Allows(t, "FIN", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), c, server, fixtures.TcpFIN|fixtures.TcpACK)))
			p.Allows(t, "FIN back", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, c, fixtures.TcpFIN|fixtures.TcpACK)))
		}
		if all := p.Entries(t); len(all) != 1 || all[0].Source != clients[1] || all[0].State != conntrack.Closed {
			t.Errorf("sessions %+v, expected that of %s, closed", all, clients[1])
		}
	})
}

// What opens a connection whose ports an older one has had, which was answered, is a new one's, wherever that is kept: it is counted from its beginning, and
// there is one.
func TestYoungSessionsAgain(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	harness.EachFamily(t, func(t *testing.T, family int) {
		for i, ended := range []bool{true, false} {
			p.Forget(t)
			client, server := harness.End{Member: fixtures.PodB, Port: 40000 + uint16(i)}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family) // in different places
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
			if all := p.Entries(t); len(all) != 1 || all[0].Packets != [2]uint64{1, 0} || all[0].State != conntrack.Opening {
				t.Errorf("after one that has ended (%t): sessions %+v", ended, all)
			}
		}
	})
}

// What opens a connection and is sent again, since nobody answers, is of the same one, wherever that is kept by then.
func TestYoungSessionsWait(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
	harness.EachFamily(t, func(t *testing.T, family int) {
		p.Forget(t)
		server := harness.End{Member: fixtures.PodA, Port: 80}.At(family)
		clients := harness.OnePlace(t, server, fixtures.ProtoTCP, 2)
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
			t.Errorf("sessions %+v, expected one of each client with all its packets", all)
		}
	})
}

// TCP that carries nothing and opens nothing goes by the rules, and begins nothing: it may be of a session that is over and kept no more.
func TestBareSegmentsBeginNoSession(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		for _, c := range []struct {
			name   string
			flags  byte
			data   string
			filled bool // up to the length of Ethernet's shortest frame
			begins int
		}{
			{name: "ACK", flags: fixtures.TcpACK},
			{name: "ACK in a frame that is filled up", flags: fixtures.TcpACK, filled: true},
			{name: "FIN", flags: fixtures.TcpFIN | fixtures.TcpACK},
			{name: "SYN and ACK", flags: fixtures.TcpSYN | fixtures.TcpACK, begins: 1},
			{name: "data", flags: fixtures.TcpACK, data: "!", begins: 1},
			{name: "FIN with data", flags: fixtures.TcpFIN | fixtures.TcpACK, data: "!", begins: 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
				p.Forget(t)
				client, server := harness.End{Member: fixtures.PodB, Port: 40000}.At(family), harness.End{Member: fixtures.PodA, Port: 80}.At(family)
				in := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, c.flags).Payload(c.data))
				if c.flags&fixtures.TcpSYN != 0 {
					in = harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, c.flags).Payload(c.data))
				}
				if c.filled {
					in.In = append(in.In, make([]byte, 6)...)
				}
				p.Allows(t, "allowed", in)
				if n := len(p.Entries(t)); n != c.begins {
					t.Errorf("%d sessions, expected %d", n, c.begins)
				}
				if c.begins == 0 {
					p.Allows(t, "data afterwards", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, server, fixtures.TcpACK)))
					if n := len(p.Entries(t)); n != 1 {
						t.Errorf("%d sessions after data, expected one", n)
					}
					p.Ingress(t, map[policy.Identity]policy.Ports{})
					p.Denies(t, "forbidden", in, harness.NoIngress)
				}
			})
		}
	})
}

// However often sessions are settled meanwhile, each packet finds its own.
func TestSettleUnderTraffic(t *testing.T) {
	const clients = 2000
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsUDP}))
	var stop atomic.Bool
	var settling sync.WaitGroup
	settling.Go(func() {
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
		runtime.Gosched() // with one processor the two take turns
	}
	stop.Store(true)
	settling.Wait()
	if n := len(p.Entries(t)); n != clients {
		t.Errorf("%d sessions of %d clients", n, clients)
	}
}
