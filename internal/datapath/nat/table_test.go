package nat

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Both directions expire together, at the timeout of their common state and not a second earlier.
func TestConnectionsExpire(t *testing.T) {
	const tcp, udp, sctp = uint8(cluster.TCP), uint8(cluster.UDP), uint8(cluster.SCTP)
	for _, c := range []struct {
		name        string
		protocol    uint8
		pending     bool
		there, back fixtures.Half
		lasts       time.Duration   // from the later packet of both
		state       conntrack.State // of the initiator's direction
		inspected   bool            // found only over several calls
		not, only   string          // the direction that must not, or must, be idle longer
	}{
		{name: "TCP established", protocol: tcp, lasts: 6 * time.Hour, state: conntrack.StateEstablished},
		{name: "TCP, one end has sent FIN", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsFIN}, lasts: 4 * time.Minute, state: conntrack.StateClosing},
		{name: "TCP, the other end has sent FIN", protocol: tcp, back: fixtures.Half{Flags: fixtures.IsFIN}, lasts: 4 * time.Minute},
		{name: "TCP, both ends have sent FIN", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsFIN}, back: fixtures.Half{Flags: fixtures.IsFIN}, lasts: 10 * time.Second},
		{name: "TCP, the backend has sent FIN first", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsFIN | fixtures.IsResting}, back: fixtures.Half{Flags: fixtures.IsFIN | fixtures.IsResting}, lasts: time.Minute, state: conntrack.StateClosing},
		{name: "TCP, the backend has sent FIN first, the client none", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsResting}, back: fixtures.Half{Flags: fixtures.IsFIN | fixtures.IsResting}, lasts: 4 * time.Minute},
		{name: "TCP, the client has sent RST", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsReset}, lasts: 4 * time.Minute, state: conntrack.StateClosing, not: "there"},
		{name: "TCP, the backend has sent RST", protocol: tcp, back: fixtures.Half{Flags: fixtures.IsReset}, lasts: 4 * time.Minute, not: "back"},
		{name: "TCP, the client has sent RST and the backend FIN", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsReset}, back: fixtures.Half{Flags: fixtures.IsFIN}, lasts: 10 * time.Second, state: conntrack.StateClosing},
		{name: "TCP, both ends have sent RST", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsReset}, back: fixtures.Half{Flags: fixtures.IsReset}, lasts: 10 * time.Second, state: conntrack.StateClosing},
		{name: "TCP, the backend goes on after RST of the client", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsReset}, lasts: 6 * time.Hour, state: conntrack.StateClosing, only: "there"},
		{name: "TCP, the client goes on after RST of the backend", protocol: tcp, back: fixtures.Half{Flags: fixtures.IsReset}, lasts: 6 * time.Hour, only: "back"},
		{name: "TCP without a reply", protocol: tcp, pending: true, lasts: 2 * time.Minute, state: conntrack.StateNew},
		{name: "TCP with one reply", protocol: tcp, pending: true, back: fixtures.Half{Packets: 1}, lasts: time.Minute, state: conntrack.StateNew},
		{name: "TCP rejected", protocol: tcp, pending: true, back: fixtures.Half{Flags: fixtures.IsReset}, lasts: 10 * time.Second},
		{name: "UDP", protocol: udp, lasts: 30 * time.Second, state: conntrack.StateEstablished},
		{name: "UDP, a stream of one direction only", protocol: udp, there: fixtures.Half{Flags: fixtures.IsStream}, lasts: 30 * time.Second, state: conntrack.StateEstablished},
		{name: "UDP, a stream", protocol: udp, there: fixtures.Half{Flags: fixtures.IsStream}, back: fixtures.Half{Flags: fixtures.IsStream}, lasts: 2 * time.Minute, state: conntrack.StateEstablished},
		{name: "UDP direct, a stream", protocol: udp, pending: true, there: fixtures.Half{Flags: fixtures.IsDirect | fixtures.IsStream, Packets: 2}, back: fixtures.Half{Missing: true}, lasts: 2 * time.Minute, state: conntrack.StateEstablished},
		{name: "UDP has no FIN", protocol: udp, there: fixtures.Half{Flags: fixtures.IsFIN}, lasts: 30 * time.Second, state: conntrack.StateEstablished},
		{name: "UDP without a reply", protocol: udp, pending: true, lasts: 30 * time.Second, state: conntrack.StateNew},
		{name: "SCTP established", protocol: sctp, lasts: 6 * time.Hour, state: conntrack.StateEstablished},
		{name: "SCTP, one end shuts down", protocol: sctp, there: fixtures.Half{Flags: fixtures.IsFIN}, lasts: 4 * time.Minute, state: conntrack.StateClosing},
		{name: "SCTP, both ends have shut down", protocol: sctp, there: fixtures.Half{Flags: fixtures.IsFIN}, back: fixtures.Half{Flags: fixtures.IsFIN}, lasts: 10 * time.Second},
		{name: "SCTP without a reply", protocol: sctp, pending: true, lasts: 2 * time.Minute, state: conntrack.StateNew},
		{name: "ICMP echo", protocol: uint8(cluster.ICMP), lasts: 30 * time.Second, state: conntrack.StateEstablished},
		{name: "ICMPv6 echo", protocol: uint8(cluster.ICMPv6), lasts: 30 * time.Second, state: conntrack.StateEstablished},
		{name: "TCP direct", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsDirect}, back: fixtures.Half{Missing: true}, lasts: 6 * time.Hour, state: conntrack.StateEstablished},
		{name: "TCP direct, one packet", protocol: tcp, pending: true, there: fixtures.Half{Flags: fixtures.IsDirect}, back: fixtures.Half{Missing: true}, lasts: 2 * time.Minute, state: conntrack.StateNew},
		{name: "TCP direct, several packets", protocol: tcp, pending: true, there: fixtures.Half{Flags: fixtures.IsDirect, Packets: 2}, back: fixtures.Half{Missing: true}, lasts: 6 * time.Hour, state: conntrack.StateEstablished},
		{name: "TCP plain", protocol: tcp, there: fixtures.Half{Flags: fixtures.IsPlain}, back: fixtures.Half{Flags: fixtures.IsPlain}, lasts: 6 * time.Hour, state: conntrack.StateEstablished},
		{name: "no reply entry", protocol: tcp, back: fixtures.Half{Missing: true}, lasts: 10 * time.Second, inspected: true},
		{name: "the reply entry was evicted from nat_pending", protocol: tcp, pending: true, back: fixtures.Half{Missing: true}, lasts: 2 * time.Minute, state: conntrack.StateNew},
		{name: "only the reply entry", protocol: udp, there: fixtures.Half{Missing: true}, lasts: 10 * time.Second, inspected: true},
		{name: "only the reply entry of a pending connection", protocol: tcp, pending: true, there: fixtures.Half{Missing: true}, lasts: 2 * time.Minute},
	} {
		for _, quieter := range []string{"both", "there", "back"} {
			if quieter == c.not || c.only != "" && quieter != c.only {
				continue
			}
			t.Run(c.name+", quiet "+quieter, func(t *testing.T) {
				d := openSmall(t)
				m := d.Objects.Maps.Nat
				if c.pending {
					m = d.Objects.Maps.NatPending
				}
				fill := func(quiet time.Duration) {
					there, back := fixtures.ClientTo(netip.MustParseAddrPort("10.1.2.2:8080"), c.protocol, 40000, 7)
					c.there.Quiet, c.back.Quiet = quiet, quiet
					if quieter == "there" && !c.back.Missing {
						c.there.Quiet = quiet + 10*time.Hour
					}
					if quieter == "back" && !c.there.Missing {
						c.back.Quiet = quiet + 10*time.Hour
					}
					c.there.Put(t, m, there)
					c.back.Put(t, m, back)
				}
				halves := 2
				if c.there.Missing || c.back.Missing {
					halves = 1
				}
				fill(c.lasts - time.Second)
				for range slots {
					if removed, err := d.Connections.Expire(fixtures.SomeTime); err != nil || removed != 0 {
						t.Errorf("%d entries are removed a second early: %v", removed, err)
					}
				}
				if got := d.Connections.Counts(); c.state != "" && (len(got) != 1 || got[0].State != c.state || got[0].Entries != 1) {
					t.Errorf("counts are %+v, expected one that is %s", got, c.state)
				}
				fill(c.lasts)
				removed := 0
				for i := 0; i < slots && (i == 0 || c.inspected); i++ {
					n, err := d.Connections.Expire(fixtures.SomeTime)
					if err != nil {
						t.Fatal(err)
					}
					removed += n
				}
				if removed != halves {
					t.Errorf("%d entries are removed in time", removed)
				}
				if n, err := table.Count(m); err != nil || n != 0 {
					t.Errorf("%d entries are left: %v", n, err)
				}
				if _, err := d.Connections.Expire(fixtures.SomeTime); err != nil {
					t.Error(err)
				}
				if got := d.Connections.Counts(); len(got) != 0 {
					t.Errorf("counts are %+v", got)
				}
			})
		}
	}
}

// In a crowded map, an RST of one end expires as fast as FIN of both, and TIME-WAIT is skipped.
func TestConnectionsExpireCrowded(t *testing.T) {
	const pairs = 2100 // of 8192 entries: more than half
	d := openSmall(t)
	for i := range pairs {
		there, back := fixtures.ClientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), uint16(10000+2*i), 7)
		fixtures.Half{Quiet: 30 * time.Second, Flags: []uint8{0, fixtures.IsReset, fixtures.IsFIN, fixtures.IsFIN | fixtures.IsResting}[i%4]}.Put(t, d.Objects.Maps.Nat, there)
		fixtures.Half{Quiet: 30 * time.Second, Flags: []uint8{0, 0, 0, fixtures.IsFIN | fixtures.IsResting}[i%4]}.Put(t, d.Objects.Maps.Nat, back)
	}
	if removed, err := d.Connections.Expire(fixtures.SomeTime); err != nil || removed != 0 {
		t.Errorf("%d entries are removed before anybody could know that there are so many: %v", removed, err)
	}
	if removed, err := d.Connections.Expire(fixtures.SomeTime); err != nil || removed != 2*pairs/4*2 {
		t.Errorf("%d entries are removed: %v", removed, err)
	}
}

// While a connection becomes established, its entries may be in different maps.
func TestConnectionsExpireAcross(t *testing.T) {
	d := openSmall(t)
	there, back := fixtures.ClientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), 40000, 7)
	fixtures.Half{Quiet: 30 * time.Second}.Put(t, d.Objects.Maps.NatPending, there)
	fixtures.Half{Quiet: 30 * time.Second}.Put(t, d.Objects.Maps.Nat, back)
	if removed, err := d.Connections.Expire(fixtures.SomeTime); err != nil || removed != 0 {
		t.Errorf("%d entries are removed: %v", removed, err)
	}
	if removed, err := d.Connections.Expire(fixtures.SomeTime + 7*time.Hour); err != nil || removed != 2 {
		t.Errorf("%d entries are removed: %v", removed, err)
	}
}

// When the load ends, the maps become empty; no live entry is removed early.
func TestConnectionsBecomeEmpty(t *testing.T) {
	const pairs = 3000
	d := openSmall(t)
	for i := range pairs {
		protocol := []uint8{uint8(cluster.TCP), uint8(cluster.UDP), uint8(cluster.ICMP)}[i%3]
		there, back := fixtures.ClientTo(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}), 8080), protocol, uint16(10000+2*i), uint32(i%2))
		m := d.Objects.Maps.Nat
		if i%5 == 0 {
			m = d.Objects.Maps.NatPending
		}
		fixtures.Half{}.Put(t, m, there)
		fixtures.Half{}.Put(t, m, back)
	}
	left := 2 * pairs
	for now := fixtures.SomeTime; left > 0 && now <= fixtures.SomeTime+7*time.Hour; now += 10 * time.Second {
		removed, err := d.Connections.Expire(now)
		if err != nil {
			t.Fatal(err)
		}
		if removed%2 != 0 {
			t.Fatalf("%d entries are removed after %s: a half is left", removed, now-fixtures.SomeTime)
		}
		counted := 0
		for _, c := range d.Connections.Counts() {
			counted += 2 * c.Entries
		}
		if counted != left {
			t.Fatalf("%d entries are counted after %s, expected %d", counted, now-fixtures.SomeTime, left)
		}
		left -= removed
	}
	for _, m := range []*ebpf.Map{d.Objects.Maps.Nat, d.Objects.Maps.NatPending} {
		if n, err := table.Count(m); err != nil || n != 0 || left != 0 {
			t.Errorf("%d entries are left, %d expected: %v", n, left, err)
		}
	}
}

// A pod that reuses an address inherits no connection of the old pod, in either role, and no entry in nat_pods.
func TestForgetPods(t *testing.T) {
	d := openSmall(t)
	gone, stays := netip.MustParseAddr("10.1.2.2"), netip.MustParseAddr("10.1.2.3")
	port := uint16(20000)
	add := func(m *ebpf.Map, pod netip.Addr, masqueraded bool) {
		port += 2
		there, back := fixtures.ClientTo(netip.AddrPortFrom(pod, 53), fixtures.ProtoUDP, port, 7)
		if masqueraded { // the pod is the client
			there.Key.Source, back.Value.Destination = bpf.AddressOf(pod), bpf.AddressOf(pod)
			there.Value.Destination, back.Key.Source = bpf.AddressOf(fixtures.External.V4), bpf.AddressOf(fixtures.External.V4)
		}
		fixtures.Half{}.Put(t, m, there)
		fixtures.Half{}.Put(t, m, back)
	}
	for _, pod := range []netip.Addr{gone, stays} {
		for _, m := range []*ebpf.Map{d.Objects.Maps.Nat, d.Objects.Maps.NatPending} {
			add(m, pod, false)
			add(m, pod, true)
		}
		if err := d.Objects.Maps.NatPods.Put(bpf.AddressOf(pod), uint64(fixtures.SomeTime)); err != nil {
			t.Fatal(err)
		}
	}
	const each = 8
	if removed, err := d.Connections.ForgetPods(nil); err != nil || removed != 0 {
		t.Errorf("%d entries are removed without a reason: %v", removed, err)
	}
	if removed, err := d.Connections.ForgetPods([]netip.Addr{gone, netip.MustParseAddr("10.9.9.9")}); err != nil || removed != each+1 {
		t.Errorf("%d entries are removed, expected %d: %v", removed, each+1, err)
	}
	left := 0
	for _, m := range []*ebpf.Map{d.Objects.Maps.Nat, d.Objects.Maps.NatPending, d.Objects.Maps.NatPods} {
		n, err := table.Count(m)
		if err != nil {
			t.Fatal(err)
		}
		left += n
	}
	if left != each+1 {
		t.Errorf("%d entries are left, expected %d of the other pod", left, each+1)
	}
}

// Of the connections to a removed backend, those are removed that nothing else would end.
func TestForgetBackends(t *testing.T) {
	d := openSmall(t)
	gone, stays := netip.MustParseAddrPort("10.1.2.2:53"), netip.MustParseAddrPort("10.1.2.3:53")
	port := uint16(20000)
	add := func(m *ebpf.Map, to netip.AddrPort, protocol cluster.Protocol, service uint32, flags uint8) {
		port += 2
		there, back := fixtures.ClientTo(to, uint8(protocol), port, service)
		fixtures.Half{Flags: flags}.Put(t, m, there)
		if flags&fixtures.IsDirect == 0 {
			fixtures.Half{Flags: flags}.Put(t, m, back)
		}
	}
	add(d.Objects.Maps.Nat, gone, cluster.UDP, 7, 0)
	add(d.Objects.Maps.Nat, gone, cluster.UDP, 7, fixtures.IsDirect)
	add(d.Objects.Maps.NatPending, gone, cluster.UDP, 7, 0)
	add(d.Objects.Maps.NatPending, gone, cluster.TCP, 7, 0)
	const expected = 2 + 1 + 2 + 2
	add(d.Objects.Maps.Nat, gone, cluster.TCP, 7, 0) // drains
	add(d.Objects.Maps.Nat, gone, cluster.UDP, 0, 0) // a pod that sends to it directly, as to any external host
	add(d.Objects.Maps.Nat, stays, cluster.UDP, 7, 0)
	add(d.Objects.Maps.NatPending, stays, cluster.UDP, 7, 0)
	const others = 4 * 2
	if removed, err := d.Connections.ForgetBackends(nil, nil); err != nil || removed != 0 {
		t.Errorf("%d entries are removed without a reason: %v", removed, err)
	}
	all, both := []netip.AddrPort{gone, netip.MustParseAddrPort("10.9.9.9:1")}, 0
	for _, udp := range [][]netip.AddrPort{nil, all} {
		removed, err := d.Connections.ForgetBackends(all, udp)
		if err != nil {
			t.Fatal(err)
		}
		if udp == nil && removed != 2+2 {
			t.Errorf("%d entries are removed without a reply, expected 4", removed)
		}
		both += removed
	}
	if both != expected {
		t.Errorf("%d entries are removed, expected %d", both, expected)
	}
	n, err := table.Count(d.Objects.Maps.Nat)
	if err != nil {
		t.Fatal(err)
	}
	m, err := table.Count(d.Objects.Maps.NatPending)
	if err != nil || n+m != others {
		t.Errorf("%d entries are left, expected %d: %v", n+m, others, err)
	}
}

// Fragment state expires.
func TestFragmentsExpire(t *testing.T) {
	d := openSmall(t)
	seen := uint64(fixtures.SomeTime.Nanoseconds())
	for id := range uint32(10) {
		if err := d.Objects.Maps.Fragments.Put(bpf.FragmentKey{Slot: id}, bpf.Fragment{Seen: seen + uint64(id)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		after   time.Duration
		removed int
	}{{time.Minute - 1, 0}, {time.Minute + 4, 5}, {time.Minute + 4, 0}, {time.Hour, 5}} {
		if removed, err := d.Connections.Expire(fixtures.SomeTime + c.after); err != nil || removed != c.removed {
			t.Errorf("%d entries are removed after %s, expected %d: %v", removed, c.after, c.removed, err)
		}
	}
	if n, err := table.Count(d.Objects.Maps.Fragments); err != nil || n != 0 {
		t.Errorf("%d entries are left: %v", n, err)
	}
}

// Pods stay listed while they have a connection.
func TestTranslatedPodsExpire(t *testing.T) {
	d := openSmall(t)
	pods := d.Objects.Maps.NatPods
	began := uint64((fixtures.SomeTime - time.Minute).Nanoseconds())
	there, back := fixtures.ClientTo(netip.AddrPortFrom(fixtures.PodB.V4, 8080), uint8(cluster.TCP), 40000, 7)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, there)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, back)
	for a, value := range map[netip.Addr]uint64{
		fixtures.PodA.V4: began, fixtures.PodB.V4: began, fixtures.PodC.V4: uint64(fixtures.SomeTime.Nanoseconds()), // whose NAT entry does not exist yet
	} {
		if err := pods.Put(bpf.AddressOf(a), value); err != nil {
			t.Fatal(err)
		}
	}
	generation := func() (now uint32) {
		if err := d.Objects.Maps.Generation.Lookup(uint32(0), &now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	before := generation()
	if removed, err := d.Connections.Expire(fixtures.SomeTime); err != nil || removed != 1 {
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
		listed[a.Addr()] = true
	}
	if diff := cmp.Diff(map[netip.Addr]bool{fixtures.PodB.V4: true, fixtures.PodC.V4: true}, listed, fixtures.CompareAddresses); diff != "" {
		t.Errorf("pods (-expected +listed):\n%s", diff)
	}
	before = generation()
	if removed, err := d.Connections.Expire(fixtures.SomeTime + time.Minute); err != nil || removed != 1 { // PodC
		t.Errorf("%d entries are removed: %v", removed, err)
	}
	if removed, err := d.Connections.Expire(fixtures.SomeTime + 7*time.Hour); err != nil || removed != 3 {
		t.Errorf("%d entries are removed with the connection: %v", removed, err)
	}
	if _, err := d.Connections.Expire(fixtures.SomeTime + 7*time.Hour); err != nil || generation() != before+2 {
		t.Errorf("generation went from %d to %d: %v", before, generation(), err)
	}
}

// tables are the NAT maps and their Table.
type tables struct {
	*load.Objects
	Connections *Table
}

// openSmall opens small NAT maps.
func openSmall(tb testing.TB) *tables {
	tb.Helper()
	return openTable(tb, config.Sizes{NAT: 8192, NATPending: 8192})
}

func openTable(tb testing.TB, sizes config.Sizes) *tables {
	tb.Helper()
	o := testmaps.Open(tb, config.Datapath{Services: true, Sizes: sizes})
	return &tables{o, New(&o.Maps, o.Generation)}
}

// BenchmarkExpire reads full maps of live and of idle connections, and empty ones.
func BenchmarkExpire(b *testing.B) {
	for _, c := range []struct {
		pairs int
		quiet time.Duration
	}{{0, 0}, {131072, 0}, {131072, time.Hour}} {
		b.Run(fmt.Sprintf("entries=%d,quiet=%s", 2*c.pairs, c.quiet), func(b *testing.B) {
			d := openTable(b, config.Sizes{})
			seen := uint64((fixtures.SomeTime - c.quiet).Nanoseconds())
			w := table.Writes[bpf.Tuple, bpf.NatEntry]{M: d.Objects.Maps.Nat}
			for i := range c.pairs {
				there, back := fixtures.ClientTo(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 8080), uint8(cluster.TCP), 40000, 7)
				there.Key.SourcePort, back.Value.DestinationPort = uint16(i), uint16(i)
				there.Key.Source.Word[0], back.Value.Destination.Word[0] = uint32(i>>16), uint32(i>>16)
				there.Value.Seen, back.Value.Seen = seen, seen
				w.Add(there.Key, there.Value)
				w.Add(back.Key, back.Value)
			}
			if _, err := w.Do(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if removed, err := d.Connections.Expire(fixtures.SomeTime); err != nil || removed != 0 {
					b.Fatal(removed, err)
				}
			}
		})
	}
}
