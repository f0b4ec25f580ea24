package nat_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// asker is a local pod that sends to one port of an external host, masqueraded.
type asker struct {
	r      *harness.Harness
	pod    fixtures.Member
	family int
}

// to is the destination.
func (a asker) to() netip.AddrPort { return netip.AddrPortFrom(fixtures.External.Addr(a.family), 53) }

// run runs one packet and reports whether it was forwarded, and its output.
func (a asker) run(tb testing.TB, in harness.Run) (went bool, out []byte) {
	tb.Helper()
	var got harness.Outcome
	var err error
	a.r.Netns.Do(func() { got, err = a.r.Run(in) })
	if err != nil {
		tb.Fatal(err)
	}
	return got.Verdict != harness.VerdictDrop, got.Out
}

// sends sends UDP, or TCP with flags, from a port, and returns the translated port; 0 if dropped.
func (a asker) sends(tb testing.TB, protocol uint8, from uint16, flags byte) uint16 {
	tb.Helper()
	p := fixtures.ToWire().Ip(a.pod.Addr(a.family), a.to().Addr())
	if protocol == fixtures.ProtoUDP {
		p = p.Udp(from, a.to().Port()).Payload("?")
	} else {
		p = p.Tcp(from, a.to().Port()).Segment(flags, 1000, 1000)
	}
	went, out := a.run(tb, harness.StackSends(p))
	if !went {
		return 0
	}
	at := fixtures.EthLen + fixtures.Ipv4Len
	if a.family == 6 {
		at = fixtures.EthLen + fixtures.Ipv6Len
	}
	return binary.BigEndian.Uint16(out[at:])
}

// hears receives a packet of the remote end at a port of the node, and reports whether the pod gets it.
func (a asker) hears(tb testing.TB, protocol uint8, port uint16, flags byte) bool {
	tb.Helper()
	p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(a.to().Addr(), fixtures.NodeA.Addr(a.family))
	if protocol == fixtures.ProtoUDP {
		p = p.Udp(a.to().Port(), port).Payload("!")
	} else {
		p = p.Tcp(a.to().Port(), port).Segment(flags, 1000, 1001)
	}
	_, out := a.run(tb, harness.WireBrings(p))
	at := fixtures.EthLen + 16
	if a.family == 6 {
		at = fixtures.EthLen + 24
	}
	to, _ := netip.AddrFromSlice(out[at : at+a.pod.Addr(a.family).BitLen()/8])
	return to == a.pod.Addr(a.family)
}

// asks sends one request and reports whether the reply arrived.
func (a asker) asks(tb testing.TB, from uint16) bool {
	tb.Helper()
	port := a.sends(tb, fixtures.ProtoUDP, from, 0)
	return port != 0 && a.hears(tb, fixtures.ProtoUDP, port, 0)
}

// connects makes a TCP connection and reports whether it was established.
func (a asker) connects(tb testing.TB, from uint16) bool {
	tb.Helper()
	port := a.sends(tb, fixtures.ProtoTCP, from, fixtures.TcpSYN)
	return port != 0 && a.hears(tb, fixtures.ProtoTCP, port, fixtures.TcpSYN|fixtures.TcpACK) && a.sends(tb, fixtures.ProtoTCP, from, fixtures.TcpACK) == port && a.hears(tb, fixtures.ProtoTCP, port, fixtures.TcpPSH|fixtures.TcpACK)
}

// withTwoPods runs a test with two pods of one node, PodA and PodA2.
func withTwoPods(t *testing.T, cfg config.Datapath, f func(t *testing.T, r *harness.Harness, greedy, modest asker)) {
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			r := harness.NewServices(t, cfg)
			f(t, r, asker{r, fixtures.PodA, family}, asker{r, fixtures.PodA2, family})
		})
	}
}

// smallTables has a capacity of 128 entries, and of 64 pending ones.
var smallTables = config.Sizes{NAT: 256, NATPending: 128}

// While a map has free entries, a new connection evicts no other, neither of its own pod nor of one that holds more.
func TestNoEvictionBelowCapacity(t *testing.T) {
	withTwoPods(t, config.Datapath{Sizes: smallTables}, func(t *testing.T, r *harness.Harness, greedy, modest asker) {
		const open = 16 // of each pod: half of the slots together
		// A pod that has used each slot once holds the map by its slot count, although its connections are over.
		for from := range uint16(200) {
			greedy.asks(t, 20000+from)
		}
		pods := []asker{greedy, modest}
		ports := make([][open]uint16, len(pods))
		for from := range open {
			for i, pod := range pods {
				ports[i][from] = pod.sends(t, fixtures.ProtoUDP, 10000+uint16(from), 0)
			}
		}
		for i, pod := range pods {
			for from, port := range ports[i] {
				if port == 0 || !pod.hears(t, fixtures.ProtoUDP, port, 0) {
					t.Errorf("pod %d: question %d has no answer, and half of the table is free", i, from)
				}
			}
		}
	})
}

// A pod that exceeds the capacity loses only its own replies: another pod's entries survive, whichever started first,
// and it can always create more.
func TestPodAtItsBoundLosesItsOwn(t *testing.T) {
	withTwoPods(t, config.Datapath{Sizes: smallTables}, func(t *testing.T, r *harness.Harness, greedy, modest asker) {
		for from := range uint16(200) {
			greedy.asks(t, 10000+from)
		}
		const streams = 10
		for from := range uint16(streams) {
			if !modest.connects(t, 2000+from) {
				t.Fatalf("connection %d finds no room, and another pod has all of it", from)
			}
		}
		for from := range uint16(600) {
			greedy.asks(t, 11000+from)
			if from%10 == 0 && !modest.asks(t, 3000+from) {
				t.Errorf("question %d has no answer", from/10)
			}
		}
		for from := range uint16(streams) {
			if modest.sends(t, fixtures.ProtoTCP, 2000+from, fixtures.TcpPSH|fixtures.TcpACK) == 0 {
				t.Errorf("connection %d is gone", from)
			}
			if n := owned(r, t, r.D.Objects.Maps.Nat, modest, 2000+from, fixtures.ProtoTCP); n != 1 {
				t.Errorf("connection %d has %d entries", from, n)
			}
		}
		if n, err := table.Count(r.D.Objects.Maps.Nat); err != nil || n > int(smallTables.NAT) {
			t.Errorf("%d entries: %v", n, err)
		}
	})
}

// owned counts the entries of a pod's packets from a port.
func owned(r *harness.Harness, tb testing.TB, m *ebpf.Map, a asker, from uint16, protocol uint8) int {
	tb.Helper()
	var c bpf.NatEntry
	if m.Lookup(bpf.TupleOf(netip.AddrPortFrom(a.pod.Addr(a.family), from), a.to(), protocol), &c) != nil {
		return 0
	}
	return 1
}

// Handshakes of a pod, and one from outside, survive a SYN flood of another pod.
func TestHalfOpenOfOthersSurviveFlood(t *testing.T) {
	withTwoPods(t, config.Datapath{Sizes: smallTables}, func(t *testing.T, r *harness.Harness, greedy, modest asker) {
		floods := map[string]func(i uint16){
			"of a pod": func(i uint16) { greedy.sends(t, fixtures.ProtoTCP, 10000+i, fixtures.TcpSYN) },
			"from outside": func(i uint16) {
				f := fixtures.FlowOf(modest.family)
				client := f.Client.Addr()
				for range i / 100 {
					client = client.Next()
				}
				modest.run(t, harness.WireBrings(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(client, f.Frontend.Addr()).Tcp(10000+i, f.Frontend.Port()).Segment(fixtures.TcpSYN, 1, 0)))
			},
		}
		for name, flood := range floods {
			for i := range uint16(300) {
				flood(i)
			}
			port := modest.sends(t, fixtures.ProtoTCP, 2000, fixtures.TcpSYN)
			for i := range uint16(500) {
				flood(300 + i)
			}
			if port == 0 || !modest.hears(t, fixtures.ProtoTCP, port, fixtures.TcpSYN|fixtures.TcpACK) {
				t.Errorf("a flood %s has pushed the handshake at port %d out", name, port)
			}
			if !modest.connects(t, 2001) {
				t.Errorf("during a flood %s no connection comes about", name)
			}
		}
	})
}

// If the agent removes no expired entries, the datapath evicts them when it needs space: here TCP connections.
func TestExpiredAreEvictedWithoutAgent(t *testing.T) {
	withTwoPods(t, config.Datapath{Sizes: smallTables}, func(t *testing.T, r *harness.Harness, greedy, _ asker) {
		const room = 128
		full := 0
		for from := range uint16(2 * room) {
			if greedy.connects(t, 10000+from) {
				full++
			}
		}
		if full < room*3/4 || full > room {
			t.Fatalf("%d connections have room, of which there is for %d", full, room)
		}
		m := r.D.Objects.Maps.Nat
		now, err := table.Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		var key bpf.Tuple
		var value bpf.NatEntry
		aged := map[bpf.Tuple]bpf.NatEntry{}
		it := m.Iterate()
		for it.Next(&key, &value) {
			value.Seen = uint64(now - 11*time.Second)
			value.Flags |= fixtures.IsFIN // of both ends: timeout 10 s
			aged[key] = value
		}
		for k, v := range aged {
			if err := m.Put(k, v); err != nil {
				t.Fatal(err)
			}
		}
		for from := range uint16(room / 2) {
			if !greedy.connects(t, 20000+from) {
				t.Errorf("connection %d finds no room, and all others have expired", from)
			}
		}
	})
}

// One pod takes all ports towards one server: another pod gets its own port and keeps it.
func TestPortsAreSharedByPod(t *testing.T) {
	withTwoPods(t, config.Datapath{NATPorts: localport.Range{First: 50000, Last: 50255}}, func(t *testing.T, r *harness.Harness, greedy, modest asker) {
		const first = 20
		for i := range uint16(first) {
			if !modest.connects(t, 2000+i) {
				t.Fatalf("connection %d does not come about", i)
			}
		}
		for i := range uint16(1000) {
			greedy.asks(t, 10000+i)
			greedy.connects(t, 10000+i)
		}
		for i := range uint16(10) {
			if !modest.asks(t, 3000+i) {
				t.Errorf("question %d has no answer: all ports are another pod's", i)
			}
			if !modest.connects(t, 4000+i) {
				t.Errorf("connection %d does not come about: all ports are another pod's", i)
			}
		}
		for i := range uint16(first) {
			if owned(r, t, r.D.Objects.Maps.Nat, modest, 2000+i, fixtures.ProtoTCP) != 1 {
				t.Errorf("connection %d has lost its port", i)
			}
		}
		if !greedy.asks(t, 9999) {
			t.Error("the pod that has all ports does not get one of its own for a new question")
		}
	})
}
