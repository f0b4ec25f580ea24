package datapath

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Both directions go together, when what they make up is over, and not a second earlier.
func TestConnectionsExpire(t *testing.T) {
	const tcp, udp, sctp = uint8(cluster.TCP), uint8(cluster.UDP), uint8(cluster.SCTP)
	for _, c := range []struct {
		name        string
		protocol    uint8
		opening     bool
		there, back half
		lasts       time.Duration   // the timeout that counts from the later one of both
		state       ConnectionState // as the opener's direction shows it
		inspected   bool            // found in the course of several calls only
		not, only   string          // which direction must not, or has to, be the one that is quiet for longer
	}{
		{name: "TCP established", protocol: tcp, lasts: 6 * time.Hour, state: ConnectionEstablished},
		{name: "TCP, one end has sent FIN", protocol: tcp, there: half{flags: isFIN}, lasts: 4 * time.Minute, state: ConnectionClosing},
		{name: "TCP, the other end has sent FIN", protocol: tcp, back: half{flags: isFIN}, lasts: 4 * time.Minute},
		{name: "TCP, both ends have sent FIN", protocol: tcp, there: half{flags: isFIN}, back: half{flags: isFIN}, lasts: 10 * time.Second},
		{name: "TCP, the backend has sent FIN first", protocol: tcp, there: half{flags: isFIN | isResting}, back: half{flags: isFIN | isResting}, lasts: time.Minute, state: ConnectionClosing},
		{name: "TCP, the backend has sent FIN first, the client none", protocol: tcp, there: half{flags: isResting}, back: half{flags: isFIN | isResting}, lasts: 4 * time.Minute},
		{name: "TCP, the client has sent RST", protocol: tcp, there: half{flags: isReset}, lasts: 4 * time.Minute, state: ConnectionClosing, not: "there"},
		{name: "TCP, the backend has sent RST", protocol: tcp, back: half{flags: isReset}, lasts: 4 * time.Minute, not: "back"},
		{name: "TCP, the client has sent RST and the backend FIN", protocol: tcp, there: half{flags: isReset}, back: half{flags: isFIN}, lasts: 10 * time.Second, state: ConnectionClosing},
		{name: "TCP, both ends have sent RST", protocol: tcp, there: half{flags: isReset}, back: half{flags: isReset}, lasts: 10 * time.Second, state: ConnectionClosing},
		{name: "TCP, the backend goes on after RST of the client", protocol: tcp, there: half{flags: isReset}, lasts: 6 * time.Hour, state: ConnectionClosing, only: "there"},
		{name: "TCP, the client goes on after RST of the backend", protocol: tcp, back: half{flags: isReset}, lasts: 6 * time.Hour, only: "back"},
		{name: "TCP without an answer", protocol: tcp, opening: true, lasts: 2 * time.Minute, state: ConnectionOpening},
		{name: "TCP with an answer and no more", protocol: tcp, opening: true, back: half{packets: 1}, lasts: time.Minute, state: ConnectionOpening},
		{name: "TCP refused", protocol: tcp, opening: true, back: half{flags: isReset}, lasts: 10 * time.Second},
		{name: "UDP", protocol: udp, lasts: 30 * time.Second, state: ConnectionEstablished},
		{name: "UDP, a stream of one direction only", protocol: udp, there: half{flags: isStream}, lasts: 30 * time.Second, state: ConnectionEstablished},
		{name: "UDP, a stream", protocol: udp, there: half{flags: isStream}, back: half{flags: isStream}, lasts: 2 * time.Minute, state: ConnectionEstablished},
		{name: "UDP direct, a stream", protocol: udp, opening: true, there: half{flags: isDirect | isStream, packets: 2}, back: half{missing: true}, lasts: 2 * time.Minute, state: ConnectionEstablished},
		{name: "UDP has no FIN", protocol: udp, there: half{flags: isFIN}, lasts: 30 * time.Second, state: ConnectionEstablished},
		{name: "UDP without an answer", protocol: udp, opening: true, lasts: 30 * time.Second, state: ConnectionOpening},
		{name: "SCTP established", protocol: sctp, lasts: 6 * time.Hour, state: ConnectionEstablished},
		{name: "SCTP, one end shuts down", protocol: sctp, there: half{flags: isFIN}, lasts: 4 * time.Minute, state: ConnectionClosing},
		{name: "SCTP, both ends have shut down", protocol: sctp, there: half{flags: isFIN}, back: half{flags: isFIN}, lasts: 10 * time.Second},
		{name: "SCTP without an answer", protocol: sctp, opening: true, lasts: 2 * time.Minute, state: ConnectionOpening},
		{name: "ICMP echo", protocol: uint8(cluster.ICMP), lasts: 30 * time.Second, state: ConnectionEstablished},
		{name: "ICMPv6 echo", protocol: uint8(cluster.ICMPv6), lasts: 30 * time.Second, state: ConnectionEstablished},
		{name: "TCP direct", protocol: tcp, there: half{flags: isDirect}, back: half{missing: true}, lasts: 6 * time.Hour, state: ConnectionEstablished},
		{name: "TCP direct, one packet", protocol: tcp, opening: true, there: half{flags: isDirect}, back: half{missing: true}, lasts: 2 * time.Minute, state: ConnectionOpening},
		{name: "TCP direct, several packets", protocol: tcp, opening: true, there: half{flags: isDirect, packets: 2}, back: half{missing: true}, lasts: 6 * time.Hour, state: ConnectionEstablished},
		{name: "TCP plain", protocol: tcp, there: half{flags: isPlain}, back: half{flags: isPlain}, lasts: 6 * time.Hour, state: ConnectionEstablished},
		{name: "the way back is missing", protocol: tcp, back: half{missing: true}, lasts: 10 * time.Second, inspected: true},
		{name: "the way back was pushed out of the openings", protocol: tcp, opening: true, back: half{missing: true}, lasts: 2 * time.Minute, state: ConnectionOpening},
		{name: "a way back is all there is", protocol: udp, there: half{missing: true}, lasts: 10 * time.Second, inspected: true},
		{name: "a way back is all there is of an opening", protocol: tcp, opening: true, there: half{missing: true}, lasts: 2 * time.Minute},
	} {
		for _, quieter := range []string{"both", "there", "back"} {
			if quieter == c.not || c.only != "" && quieter != c.only {
				continue
			}
			t.Run(c.name+", quiet "+quieter, func(t *testing.T) {
				d := connectionsOnly(t)
				m := d.objects.maps.Nat
				if c.opening {
					m = d.objects.maps.NatPending
				}
				fill := func(quiet time.Duration) {
					there, back := clientTo(netip.MustParseAddrPort("10.1.2.2:8080"), c.protocol, 40000, 7)
					c.there.quiet, c.back.quiet = quiet, quiet
					if quieter == "there" && !c.back.missing {
						c.there.quiet = quiet + 10*time.Hour
					}
					if quieter == "back" && !c.there.missing {
						c.back.quiet = quiet + 10*time.Hour
					}
					c.there.put(t, m, there)
					c.back.put(t, m, back)
				}
				halves := 2
				if c.there.missing || c.back.missing {
					halves = 1
				}
				fill(c.lasts - time.Second)
				for range slots {
					if removed, err := d.Connections.Expire(someTime); err != nil || removed != 0 {
						t.Errorf("%d entries are removed a second early: %v", removed, err)
					}
				}
				if got := d.Connections.Counts(); c.state != "" && (len(got) != 1 || got[0].State != c.state || got[0].Connections != 1) {
					t.Errorf("counts are %+v, expected one that is %s", got, c.state)
				}
				fill(c.lasts)
				removed := 0
				for i := 0; i < slots && (i == 0 || c.inspected); i++ {
					n, err := d.Connections.Expire(someTime)
					if err != nil {
						t.Fatal(err)
					}
					removed += n
				}
				if removed != halves {
					t.Errorf("%d entries are removed in time", removed)
				}
				if n, err := countEntries(m); err != nil || n != 0 {
					t.Errorf("%d entries are left: %v", n, err)
				}
				if _, err := d.Connections.Expire(someTime); err != nil {
					t.Error(err)
				}
				if got := d.Connections.Counts(); len(got) != 0 {
					t.Errorf("counts are %+v", got)
				}
			})
		}
	}
}

// Where room is scarce, RST of one end is believed as fast as FIN of both, and nothing rests.
func TestConnectionsExpireCrowded(t *testing.T) {
	const pairs = 2100 // of 8192 entries: more than half
	d := connectionsOnly(t)
	for i := range pairs {
		there, back := clientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), uint16(10000+2*i), 7)
		half{quiet: 30 * time.Second, flags: []uint8{0, isReset, isFIN, isFIN | isResting}[i%4]}.put(t, d.objects.maps.Nat, there)
		half{quiet: 30 * time.Second, flags: []uint8{0, 0, 0, isFIN | isResting}[i%4]}.put(t, d.objects.maps.Nat, back)
	}
	if removed, err := d.Connections.Expire(someTime); err != nil || removed != 0 {
		t.Errorf("%d entries are removed before anybody could know that there are so many: %v", removed, err)
	}
	if removed, err := d.Connections.Expire(someTime); err != nil || removed != 2*pairs/4*2 {
		t.Errorf("%d entries are removed: %v", removed, err)
	}
}

// While a connection becomes established its halves may be in different tables.
func TestConnectionsExpireAcross(t *testing.T) {
	d := connectionsOnly(t)
	there, back := clientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), 40000, 7)
	half{quiet: 30 * time.Second}.put(t, d.objects.maps.NatPending, there)
	half{quiet: 30 * time.Second}.put(t, d.objects.maps.Nat, back)
	if removed, err := d.Connections.Expire(someTime); err != nil || removed != 0 {
		t.Errorf("%d entries are removed: %v", removed, err)
	}
	if removed, err := d.Connections.Expire(someTime + 7*time.Hour); err != nil || removed != 2 {
		t.Errorf("%d entries are removed: %v", removed, err)
	}
}

// When the load ends, the tables become empty; nothing that is live goes before.
func TestConnectionsBecomeEmpty(t *testing.T) {
	const pairs = 3000
	d := connectionsOnly(t)
	for i := range pairs {
		protocol := []uint8{uint8(cluster.TCP), uint8(cluster.UDP), uint8(cluster.ICMP)}[i%3]
		there, back := clientTo(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}), 8080), protocol, uint16(10000+2*i), uint32(i%2))
		m := d.objects.maps.Nat
		if i%5 == 0 {
			m = d.objects.maps.NatPending
		}
		half{}.put(t, m, there)
		half{}.put(t, m, back)
	}
	left := 2 * pairs
	for now := someTime; left > 0 && now <= someTime+7*time.Hour; now += 10 * time.Second {
		removed, err := d.Connections.Expire(now)
		if err != nil {
			t.Fatal(err)
		}
		if removed%2 != 0 {
			t.Fatalf("%d entries are removed after %s: a half is left", removed, now-someTime)
		}
		counted := 0
		for _, c := range d.Connections.Counts() {
			counted += 2 * c.Connections
		}
		if counted != left {
			t.Fatalf("%d entries are counted after %s, expected %d", counted, now-someTime, left)
		}
		left -= removed
	}
	for _, m := range []*ebpf.Map{d.objects.maps.Nat, d.objects.maps.NatPending} {
		if n, err := countEntries(m); err != nil || n != 0 || left != 0 {
			t.Errorf("%d entries are left, %d expected: %v", n, left, err)
		}
	}
}

// A pod that gets the address of one that is gone inherits none of its connections, whichever end it was, and no entry as a pod with some.
func TestForgetPods(t *testing.T) {
	d := connectionsOnly(t)
	gone, stays := netip.MustParseAddr("10.1.2.2"), netip.MustParseAddr("10.1.2.3")
	port := uint16(20000)
	add := func(m *ebpf.Map, pod netip.Addr, masqueraded bool) {
		port += 2
		there, back := clientTo(netip.AddrPortFrom(pod, 53), protoUDP, port, 7)
		if masqueraded { // the pod is the client
			there.key.Source, back.value.Destination = addressOf(pod), addressOf(pod)
			there.value.Destination, back.key.Source = addressOf(world.v4), addressOf(world.v4)
		}
		half{}.put(t, m, there)
		half{}.put(t, m, back)
	}
	for _, pod := range []netip.Addr{gone, stays} {
		for _, m := range []*ebpf.Map{d.objects.maps.Nat, d.objects.maps.NatPending} {
			add(m, pod, false)
			add(m, pod, true)
		}
		if err := d.objects.maps.NatPods.Put(addressOf(pod), uint64(someTime)); err != nil {
			t.Fatal(err)
		}
	}
	const each = 8
	if removed, err := d.Connections.ForgetPods(nil); err != nil || removed != 0 {
		t.Errorf("%d entries are removed for nobody: %v", removed, err)
	}
	if removed, err := d.Connections.ForgetPods([]netip.Addr{gone, netip.MustParseAddr("10.9.9.9")}); err != nil || removed != each+1 {
		t.Errorf("%d entries are removed, expected %d: %v", removed, each+1, err)
	}
	left := 0
	for _, m := range []*ebpf.Map{d.objects.maps.Nat, d.objects.maps.NatPending, d.objects.maps.NatPods} {
		n, err := countEntries(m)
		if err != nil {
			t.Fatal(err)
		}
		left += n
	}
	if left != each+1 {
		t.Errorf("%d entries are left, expected %d of the other pod", left, each+1)
	}
}

// Of connections to a backend that is gone, those go that nothing else would end.
func TestForgetBackends(t *testing.T) {
	d := connectionsOnly(t)
	gone, stays := netip.MustParseAddrPort("10.1.2.2:53"), netip.MustParseAddrPort("10.1.2.3:53")
	port := uint16(20000)
	add := func(m *ebpf.Map, to netip.AddrPort, protocol cluster.Protocol, service uint32, flags uint8) {
		port += 2
		there, back := clientTo(to, uint8(protocol), port, service)
		half{flags: flags}.put(t, m, there)
		if flags&isDirect == 0 {
			half{flags: flags}.put(t, m, back)
		}
	}
	add(d.objects.maps.Nat, gone, cluster.UDP, 7, 0)
	add(d.objects.maps.Nat, gone, cluster.UDP, 7, isDirect)
	add(d.objects.maps.NatPending, gone, cluster.UDP, 7, 0)
	add(d.objects.maps.NatPending, gone, cluster.TCP, 7, 0)
	const expected = 2 + 1 + 2 + 2
	add(d.objects.maps.Nat, gone, cluster.TCP, 7, 0) // drains
	add(d.objects.maps.Nat, gone, cluster.UDP, 0, 0) // a pod that talks to it as to anybody in the world
	add(d.objects.maps.Nat, stays, cluster.UDP, 7, 0)
	add(d.objects.maps.NatPending, stays, cluster.UDP, 7, 0)
	const others = 4 * 2
	if removed, err := d.Connections.ForgetBackends(nil, nil); err != nil || removed != 0 {
		t.Errorf("%d entries are removed for nobody: %v", removed, err)
	}
	all, both := []netip.AddrPort{gone, netip.MustParseAddrPort("10.9.9.9:1")}, 0
	for _, udp := range [][]netip.AddrPort{nil, all} {
		removed, err := d.Connections.ForgetBackends(all, udp)
		if err != nil {
			t.Fatal(err)
		}
		if udp == nil && removed != 2+2 {
			t.Errorf("%d entries are removed that nobody has answered, expected 4", removed)
		}
		both += removed
	}
	if both != expected {
		t.Errorf("%d entries are removed, expected %d", both, expected)
	}
	n, err := countEntries(d.objects.maps.Nat)
	if err != nil {
		t.Fatal(err)
	}
	m, err := countEntries(d.objects.maps.NatPending)
	if err != nil || n+m != others {
		t.Errorf("%d entries are left, expected %d: %v", n+m, others, err)
	}
}

// What is remembered of packets in pieces goes when no more pieces can come.
func TestFragmentsExpire(t *testing.T) {
	d := connectionsOnly(t)
	seen := uint64(someTime.Nanoseconds())
	for id := range uint32(10) {
		if err := d.objects.maps.Fragments.Put(bpfFragmentKey{Slot: id}, bpfFragment{Seen: seen + uint64(id)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		after   time.Duration
		removed int
	}{{time.Minute - 1, 0}, {time.Minute + 4, 5}, {time.Minute + 4, 0}, {time.Hour, 5}} {
		if removed, err := d.Connections.Expire(someTime + c.after); err != nil || removed != c.removed {
			t.Errorf("%d entries are removed after %s, expected %d: %v", removed, c.after, c.removed, err)
		}
	}
	if n, err := countEntries(d.objects.maps.Fragments); err != nil || n != 0 {
		t.Errorf("%d entries are left: %v", n, err)
	}
}

// Pods stay listed for as long as they have a connection.
func TestTranslatedPodsExpire(t *testing.T) {
	d := connectionsOnly(t)
	pods := d.objects.maps.NatPods
	began := uint64((someTime - time.Minute).Nanoseconds())
	there, back := clientTo(netip.AddrPortFrom(podB.v4, 8080), uint8(cluster.TCP), 40000, 7)
	half{}.put(t, d.objects.maps.Nat, there)
	half{}.put(t, d.objects.maps.Nat, back)
	for a, value := range map[netip.Addr]uint64{
		podA.v4: began, podB.v4: began, podC.v4: uint64(someTime.Nanoseconds()), // whose connection is not in the tables yet
	} {
		if err := pods.Put(addressOf(a), value); err != nil {
			t.Fatal(err)
		}
	}
	generation := func() (now uint32) {
		if err := d.objects.maps.Generation.Lookup(uint32(0), &now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := generation()
	if removed, err := d.Connections.Expire(someTime); err != nil || removed != 1 {
		t.Errorf("%d entries are removed: %v", removed, err)
	}
	if generation() == before {
		t.Error("decisions that the pod is translated are kept")
	}
	listed := map[netip.Addr]bool{}
	in, err := d.Connections.pods.read()
	if err != nil {
		t.Fatal(err)
	}
	for a := range in {
		listed[a.addr()] = true
	}
	if diff := cmp.Diff(map[netip.Addr]bool{podB.v4: true, podC.v4: true}, listed, compareAddresses); diff != "" {
		t.Errorf("pods (-expected +listed):\n%s", diff)
	}
	before = generation()
	if removed, err := d.Connections.Expire(someTime + time.Minute); err != nil || removed != 1 { // podC
		t.Errorf("%d entries are removed: %v", removed, err)
	}
	if removed, err := d.Connections.Expire(someTime + 7*time.Hour); err != nil || removed != 3 {
		t.Errorf("%d entries are removed with the connection: %v", removed, err)
	}
	if _, err := d.Connections.Expire(someTime + 7*time.Hour); err != nil || generation() != before+2 {
		t.Errorf("generation went from %d to %d: %v", before, generation(), err)
	}
}

// natTables are the maps of NAT with the tables that keep them.
type natTables struct {
	*objects
	Connections *Connections
}

// connectionsOnly opens the maps of NAT, small ones.
func connectionsOnly(tb testing.TB) *natTables {
	tb.Helper()
	return openNAT(tb, Sizes{Connections: 8192, Openings: 8192})
}

func openNAT(tb testing.TB, sizes Sizes) *natTables {
	tb.Helper()
	o := openMaps(tb, Config{Services: true, Sizes: sizes})
	return &natTables{o, newConnections(&o.maps, o.generation)}
}

// BenchmarkExpire is a look at full tables, of connections that are live and of connections that are idle, and at empty ones.
func BenchmarkExpire(b *testing.B) {
	for _, c := range []struct {
		pairs int
		quiet time.Duration
	}{{0, 0}, {131072, 0}, {131072, time.Hour}} {
		b.Run(fmt.Sprintf("entries=%d,quiet=%s", 2*c.pairs, c.quiet), func(b *testing.B) {
			d := openNAT(b, Sizes{})
			seen := uint64((someTime - c.quiet).Nanoseconds())
			w := writes[bpfTuple, bpfNatEntry]{m: d.objects.maps.Nat}
			for i := range c.pairs {
				there, back := clientTo(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8080), uint8(cluster.TCP), 40000, 7)
				there.key.SourcePort, back.value.DestinationPort = uint16(i), uint16(i)
				there.key.Source.Word[0], back.value.Destination.Word[0] = uint32(i>>16), uint32(i>>16)
				there.value.Seen, back.value.Seen = seen, seen
				w.add(there.key, there.value)
				w.add(back.key, back.value)
			}
			if _, err := w.do(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if removed, err := d.Connections.Expire(someTime); err != nil || removed != 0 {
					b.Fatal(removed, err)
				}
			}
		})
	}
}
