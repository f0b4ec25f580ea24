package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/device"
)

// visitor is a client of a NodePort, packet by packet.
type visitor struct {
	r       *rig
	program string // that the uplink's packets meet
	f       visit
}

// visits gives client number i of a rig's NodePort.
func (r *rig) visits(program string, family, i int) *visitor {
	f := flowOf(family)
	f.client = netip.AddrPortFrom(f.client.Addr(), uint16(1000+i))
	return &visitor{r, program, f}
}

func (v *visitor) run(tb testing.TB, p packet) outcome {
	tb.Helper()
	var got outcome
	var err error
	v.r.stage.do(func() { got, err = v.r.run(run{program: v.program, in: p.bytes()}) })
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

// sends sends a segment to the NodePort.
func (v *visitor) sends(tb testing.TB, flags byte) outcome {
	tb.Helper()
	return v.run(tb, eth(router, nodeA.mac).ip(v.f.client.Addr(), v.f.frontend.Addr()).tcp(v.f.client.Port(), v.f.frontend.Port()).segment(flags, 1000, 0))
}

// answered brings a segment of the backend, to the port that the client's packets have got.
func (v *visitor) answered(tb testing.TB, flags byte) outcome {
	tb.Helper()
	return v.run(tb, eth(nodeB.mac, nodeA.mac).ip(v.f.backend.Addr(), v.f.node.Addr()).tcp(v.f.backend.Port(), v.f.node.Port()).segment(flags, 1000, 1001))
}

// opens begins a connection and tells whether its first packet has gone on.
func (v *visitor) opens(tb testing.TB) bool {
	tb.Helper()
	got := v.sends(tb, tcpSYN)
	if got.verdict != verdictRedirect {
		return false
	}
	at := ethLen + ipv4Len
	if v.f.client.Addr().Is6() {
		at = ethLen + ipv6Len
	}
	v.f.node = netip.AddrPortFrom(v.f.node.Addr(), binary.BigEndian.Uint16(got.out[at:]))
	return true
}

// establishes does the rest of the handshake and tells whether it has all gone on.
func (v *visitor) establishes(tb testing.TB) bool {
	tb.Helper()
	return v.isAnswered(tb, tcpSYN|tcpACK) && v.sends(tb, tcpACK).verdict == verdictRedirect
}

// goesOn tells whether an established connection carries packets both ways.
func (v *visitor) goesOn(tb testing.TB) bool {
	tb.Helper()
	return v.sends(tb, tcpPSH|tcpACK).verdict == verdictRedirect && v.isAnswered(tb, tcpPSH|tcpACK)
}

// isAnswered tells whether a segment of the backend goes on to the client.
func (v *visitor) isAnswered(tb testing.TB, flags byte) (is bool) {
	tb.Helper()
	if v.program != bpfProgWireXdp {
		return v.answered(tb, flags).verdict == verdictRedirect
	}
	inSecond(tb, func() { // about one packet in a second is tc's, where the kernel's routes lead
		v.answered(tb, flags)
		is = v.answered(tb, flags).verdict == verdictRedirect
	})
	return is
}

// eachEntrance runs a test with packets that meet tc and with packets that meet XDP, of both families.
func eachEntrance(t *testing.T, f func(t *testing.T, program string, family int)) {
	for _, program := range []string{bpfProgFromWire, bpfProgWireXdp} {
		for _, family := range families {
			t.Run(fmt.Sprintf("%s/IPv%d", program, family), func(t *testing.T) { f(t, program, family) })
		}
	}
}

func (r *rig) dropped(tb testing.TB, program string, reason uint32) uint64 {
	tb.Helper()
	return r.counters(tb)[program+" "+DropReason(reason).String()].Packets
}

// Where every port of translation is taken, new connections are dropped and counted, and the old ones go on.
func TestNodePortWithoutPorts(t *testing.T) {
	eachEntrance(t, func(t *testing.T, program string, family int) {
		const ports, more = 8, 5
		r := newServiceRig(t, Config{NATPorts: device.PortSpan{First: 50000, Last: 50000 + ports - 1}})
		var old []*visitor
		taken := map[uint16]bool{}
		for i := range ports {
			v := r.visits(program, family, i)
			if !v.opens(t) || !v.establishes(t) {
				t.Fatalf("connection %d does not come about", i)
			}
			taken[v.f.node.Port()] = true
			old = append(old, v)
		}
		if len(taken) != ports {
			t.Errorf("%d connections have the ports %v", ports, taken)
		}
		for i := range more {
			if v := r.visits(program, family, 100+i); v.opens(t) {
				t.Errorf("connection %d has got port %d, which another one has", ports+i, v.f.node.Port())
			}
		}
		if n := r.dropped(t, program, uint32(bpfDropReasonDROP_NAT_PORTS_EXHAUSTED)); n != more {
			t.Errorf("%d packets are counted", n)
		}
		for i, v := range old {
			if !v.goesOn(t) {
				t.Errorf("connection %d does not go on", i)
			}
		}
	})
}

// Where `connections` is full, no other connection becomes established, which is counted, and those that are go on.
func TestNodePortConnectionsFull(t *testing.T) {
	eachEntrance(t, func(t *testing.T, program string, family int) {
		const room, more = 16, 4
		r := newServiceRig(t, Config{Sizes: Sizes{Connections: 2 * room}})
		var old []*visitor
		for i := range room {
			v := r.visits(program, family, i)
			if !v.opens(t) || !v.establishes(t) {
				t.Fatalf("connection %d does not come about", i)
			}
			old = append(old, v)
		}
		for i := range more {
			v := r.visits(program, family, 100+i)
			if !v.opens(t) {
				t.Fatalf("the first packet of connection %d is dropped: it needs no room yet", room+i)
			}
			if v.establishes(t) {
				t.Errorf("connection %d has found room", room+i)
			}
		}
		if n := r.dropped(t, program, uint32(bpfDropReasonDROP_NAT_TABLE_FULL)); n != more {
			t.Errorf("%d packets are counted", n)
		}
		for i, v := range old {
			if !v.goesOn(t) {
				t.Errorf("connection %d does not go on", i)
			}
		}
		// One that ends makes room for another.
		if err := r.d.Connections.removeByKey(tupleOf(old[0].f.client, old[0].f.frontend, protoTCP)); err != nil {
			t.Fatal(err)
		}
		if v := r.visits(program, family, 200); !v.opens(t) || !v.establishes(t) || !v.goesOn(t) {
			t.Error("no room is made by a connection that has ended")
		}
	})
}

// A flood of SYN fills no more than the table of openings, whoever they are from, and established connections go on meanwhile.
func TestNodePortFlood(t *testing.T) {
	eachEntrance(t, func(t *testing.T, program string, family int) {
		const openings, flood = 1024, 20000
		r := newServiceRig(t, Config{Sizes: Sizes{Openings: openings}})
		old := r.visits(program, family, 0)
		if !old.opens(t) || !old.establishes(t) {
			t.Fatal("the connection does not come about")
		}
		went := 0
		r.stage.do(func() {
			source := old.f.client.Addr()
			for i := range flood {
				if i%1000 == 0 {
					source = source.Next()
				}
				p := eth(router, nodeA.mac).ip(source, old.f.frontend.Addr()).tcp(uint16(1024+i%1000), old.f.frontend.Port()).segment(tcpSYN, uint32(i), 0)
				got, err := r.run(run{program: program, in: p.bytes()})
				if err != nil {
					t.Error(err)
					return
				}
				if got.verdict == verdictRedirect {
					went++
				}
			}
		})
		if went < flood*9/10 { // who is no flood would get through as well
			t.Errorf("only %d of %d packets went on to the backend", went, flood)
		}
		if !old.goesOn(t) {
			t.Error("the established connection does not go on")
		}
		for m, most := range map[*ebpf.Map]int{r.d.objects.maps.Nat: 2, r.d.objects.maps.NatPending: openings} {
			if n, err := countEntries(m); err != nil || n > most || n == 0 {
				t.Errorf("%s has %d entries: %v", m, n, err)
			}
		}
		// And all of it is gone once it has timed out.
		now, err := Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.d.Connections.Expire(now + unansweredLasts(protoTCP)); err != nil {
			t.Fatal(err)
		}
		if n, err := countEntries(r.d.objects.maps.NatPending); err != nil || n != 0 {
			t.Errorf("%d entries of the flood are left: %v", n, err)
		}
		if !old.goesOn(t) {
			t.Error("the established connection went with the flood")
		}
	})
}
