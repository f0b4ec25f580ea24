package datapath

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// onePlace gives clients of a server whose sessions have the same place while they are young.
func onePlace(t *testing.T, server netip.AddrPort, protocol uint8, n int) []netip.AddrPort {
	t.Helper()
	var clients []netip.AddrPort
	var place uint32
	for port := uint16(1024); len(clients) < n; port++ {
		if port == 65535 {
			t.Fatal("there are not enough ports")
		}
		client := end{podB, port}.at(family(server))
		key, _ := sessionKey(bpfTuple{
			Source: addressOf(client.Addr()), Destination: addressOf(server.Addr()),
			SourcePort: networkOrder(client.Port()), DestinationPort: networkOrder(server.Port()), Protocol: protocol,
		})
		if index := youngIndex(key); len(clients) == 0 || index == place {
			clients, place = append(clients, client), index
		}
	}
	return clients
}

func family(a netip.AddrPort) int {
	if a.Addr().Is4() {
		return 4
	}
	return 6
}

// Who takes the place of a session that is not over forgets nothing of it, nor does settling: its answers, which no rule allows by
// itself, go on, and all of its packets count.
func TestYoungSessionsMove(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsUDP}))
	eachFamily(t, func(t *testing.T, family int) {
		p.forget(t)
		server := end{podA, 53}.at(family)
		clients := onePlace(t, server, protoUDP, 3)
		query := func(c netip.AddrPort) run { return wireBrings(datagram(fromWire(), c, server)) }
		reply := func(c netip.AddrPort) run { return podSends(datagram(fromPod(), server, c)) }
		p.denies(t, "a reply to nothing", reply(clients[0]), noEgress)
		for _, c := range clients {
			p.allows(t, "query", query(c))
			p.allows(t, "reply", reply(c))
		}
		for range 2 {
			for _, c := range clients {
				p.allows(t, "a reply afterwards", reply(c))
			}
			if err := p.d.Sessions.settleYoung(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.d.objects.generation.advance(); err != nil { // permits end with the decisions
			t.Fatal(err)
		}
		for _, c := range clients {
			p.allows(t, "query", query(c))
			p.allows(t, "reply", reply(c))
		}
		all := p.sessions(t)
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
	p := newPolicyRig(t, Config{EBPFRouting: true})
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	eachFamily(t, func(t *testing.T, family int) {
		p.forget(t)
		server := end{podA, 80}.at(family)
		clients := onePlace(t, server, protoTCP, 2)
		for _, c := range clients {
			p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), c, server, tcpSYN)))
			p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, c, tcpSYN|tcpACK)))
			p.allows(t, "FIN", wireBrings(segmentOf(fromWire(), c, server, tcpFIN|tcpACK)))
			p.allows(t, "FIN back", podSends(segmentOf(fromPod(), server, c, tcpFIN|tcpACK)))
		}
		if all := p.sessions(t); len(all) != 1 || all[0].Source != clients[1] || all[0].State != ConnectionClosed {
			t.Errorf("sessions %+v, expected that of %s, closed", all, clients[1])
		}
	})
}

// What opens a connection whose ports an older one has had, which was answered, is a new one's, wherever that is kept: it is counted from its beginning, and
// there is one.
func TestYoungSessionsAgain(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	eachFamily(t, func(t *testing.T, family int) {
		for i, ended := range []bool{true, false} {
			p.forget(t)
			client, server := end{podB, 40000 + uint16(i)}.at(family), end{podA, 80}.at(family) // in different places
			syn := wireBrings(segmentOf(fromWire(), client, server, tcpSYN))
			p.allows(t, "SYN", syn)
			p.allows(t, "SYN ACK", podSends(segmentOf(fromPod(), server, client, tcpSYN|tcpACK)))
			if ended {
				p.allows(t, "RST", podSends(segmentOf(fromPod(), server, client, tcpRST|tcpACK)))
			}
			if err := p.d.Sessions.settleYoung(); err != nil {
				t.Fatal(err)
			}
			p.allows(t, "SYN", syn)
			if all := p.sessions(t); len(all) != 1 || all[0].Packets != [2]uint64{1, 0} || all[0].State != ConnectionOpening {
				t.Errorf("after one that has ended (%t): sessions %+v", ended, all)
			}
		}
	})
}

// What opens a connection and is sent again, since nobody answers, is of the same one, wherever that is kept by then.
func TestYoungSessionsWait(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	eachFamily(t, func(t *testing.T, family int) {
		p.forget(t)
		server := end{podA, 80}.at(family)
		clients := onePlace(t, server, protoTCP, 2)
		syn := func(c netip.AddrPort) run { return wireBrings(segmentOf(fromWire(), c, server, tcpSYN)) }
		for _, c := range clients {
			p.allows(t, "SYN", syn(c))
		}
		p.allows(t, "SYN again", syn(clients[0]))
		if err := p.d.Sessions.settleYoung(); err != nil {
			t.Fatal(err)
		}
		for _, c := range clients {
			p.allows(t, "SYN again", syn(c))
		}
		all := p.sessions(t)
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
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		for _, c := range []struct {
			name   string
			flags  byte
			data   string
			filled bool // up to the length of Ethernet's shortest frame
			begins int
		}{
			{name: "ACK", flags: tcpACK},
			{name: "ACK in a frame that is filled up", flags: tcpACK, filled: true},
			{name: "FIN", flags: tcpFIN | tcpACK},
			{name: "SYN and ACK", flags: tcpSYN | tcpACK, begins: 1},
			{name: "data", flags: tcpACK, data: "!", begins: 1},
			{name: "FIN with data", flags: tcpFIN | tcpACK, data: "!", begins: 1},
		} {
			t.Run(c.name, func(t *testing.T) {
				p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
				p.forget(t)
				client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
				in := wireBrings(segmentOf(fromWire(), client, server, c.flags).payload(c.data))
				if c.flags&tcpSYN != 0 {
					in = podSends(segmentOf(fromPod(), server, client, c.flags).payload(c.data))
				}
				if c.filled {
					in.in = append(in.in, make([]byte, 6)...)
				}
				p.allows(t, "allowed", in)
				if n := len(p.sessions(t)); n != c.begins {
					t.Errorf("%d sessions, expected %d", n, c.begins)
				}
				if c.begins == 0 {
					p.allows(t, "data afterwards", wireBrings(segmentOf(fromWire(), client, server, tcpACK)))
					if n := len(p.sessions(t)); n != 1 {
						t.Errorf("%d sessions after data, expected one", n)
					}
					p.ingress(t, map[policy.Identity]policy.Ports{})
					p.denies(t, "forbidden", in, noIngress)
				}
			})
		}
	})
}

// However often sessions are settled meanwhile, each packet finds its own.
func TestSettleUnderTraffic(t *testing.T) {
	const clients = 2000
	p := newPolicyRig(t, Config{EBPFRouting: true})
	p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsUDP}))
	var stop atomic.Bool
	var settling sync.WaitGroup
	settling.Go(func() {
		for !stop.Load() {
			if err := p.d.Sessions.settleYoung(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	server := end{podA, 53}.at(4)
	for i := range uint16(clients) {
		client := end{podB, 20000 + i}.at(4)
		p.allows(t, "query", wireBrings(datagram(fromWire(), client, server)))
		p.allows(t, "reply", podSends(datagram(fromPod(), server, client)))
		runtime.Gosched() // with one processor the two take turns
	}
	stop.Store(true)
	settling.Wait()
	if n := len(p.sessions(t)); n != clients {
		t.Errorf("%d sessions of %d clients", n, clients)
	}
}
