package nat_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/flow"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/nat"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// visitor is a client of a NodePort, packet by packet.
type visitor struct {
	r       *harness.Harness
	program string // of the uplink's packets
	f       fixtures.Visit
}

// visits returns client number i of a NodePort.
func visits(r *harness.Harness, program string, family, i int) *visitor {
	f := fixtures.FlowOf(family)
	f.Client = netip.AddrPortFrom(f.Client.Addr(), uint16(1000+i))
	return &visitor{r, program, f}
}

func (v *visitor) run(tb testing.TB, p fixtures.Packet) harness.Outcome {
	tb.Helper()
	var got harness.Outcome
	var err error
	v.r.Netns.Do(func() { got, err = v.r.Run(harness.Run{Program: v.program, In: p.Bytes()}) })
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

// sends sends a segment to the NodePort.
func (v *visitor) sends(tb testing.TB, flags byte) harness.Outcome {
	tb.Helper()
	return v.run(tb, fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(v.f.Client.Addr(), v.f.Frontend.Addr()).Tcp(v.f.Client.Port(), v.f.Frontend.Port()).Segment(flags, 1000, 0))
}

// answered receives a segment of the backend at the client's translated port.
func (v *visitor) answered(tb testing.TB, flags byte) harness.Outcome {
	tb.Helper()
	return v.run(tb, fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac).Ip(v.f.Backend.Addr(), v.f.Node.Addr()).Tcp(v.f.Backend.Port(), v.f.Node.Port()).Segment(flags, 1000, 1001))
}

// opens sends a SYN and reports whether it was forwarded.
func (v *visitor) opens(tb testing.TB) bool {
	tb.Helper()
	got := v.sends(tb, fixtures.TcpSYN)
	if got.Verdict != harness.VerdictRedirect {
		return false
	}
	at := fixtures.EthLen + fixtures.Ipv4Len
	if v.f.Client.Addr().Is6() {
		at = fixtures.EthLen + fixtures.Ipv6Len
	}
	v.f.Node = netip.AddrPortFrom(v.f.Node.Addr(), binary.BigEndian.Uint16(got.Out[at:]))
	return true
}

// establishes completes the handshake and reports whether all packets were forwarded.
func (v *visitor) establishes(tb testing.TB) bool {
	tb.Helper()
	return v.isReplied(tb, fixtures.TcpSYN|fixtures.TcpACK) && v.sends(tb, fixtures.TcpACK).Verdict == harness.VerdictRedirect
}

// continues reports whether an established connection carries packets in both directions.
func (v *visitor) continues(tb testing.TB) bool {
	tb.Helper()
	return v.sends(tb, fixtures.TcpPSH|fixtures.TcpACK).Verdict == harness.VerdictRedirect && v.isReplied(tb, fixtures.TcpPSH|fixtures.TcpACK)
}

// isReplied reports whether a segment of the backend reaches the client.
func (v *visitor) isReplied(tb testing.TB, flags byte) (is bool) {
	tb.Helper()
	if v.program != bpf.ProgWireXdp {
		return v.answered(tb, flags).Verdict == harness.VerdictRedirect
	}
	harness.InSecond(tb, func() { // about one packet in a second passes to tc, where the kernel's routes lead
		v.answered(tb, flags)
		is = v.answered(tb, flags).Verdict == harness.VerdictRedirect
	})
	return is
}

// establish makes connections of clients 0 to n-1.
func establish(tb testing.TB, r *harness.Harness, program string, family, n int) (all []*visitor) {
	tb.Helper()
	for i := range n {
		v := visits(r, program, family, i)
		if !v.opens(tb) || !v.establishes(tb) {
			tb.Fatalf("connection %d does not come about", i)
		}
		all = append(all, v)
	}
	return all
}

// expectContinue fails the test for each connection that does not carry packets in both directions.
func expectContinue(tb testing.TB, all []*visitor) {
	tb.Helper()
	for i, v := range all {
		if !v.continues(tb) {
			tb.Errorf("connection %d with port %d does not go on", i, v.f.Node.Port())
		}
	}
}

// floods sends SYNs to the visitor's frontend, each from another source, and returns how many were forwarded.
func (v *visitor) floods(tb testing.TB, packets int, source func(i int) netip.AddrPort) (forwarded int) {
	tb.Helper()
	v.r.Netns.Do(func() {
		for i := range packets {
			from, to := source(i), v.f.Frontend
			p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(from.Addr(), to.Addr()).Tcp(from.Port(), to.Port()).Segment(fixtures.TcpSYN, uint32(i), 0)
			got, err := v.r.Run(harness.Run{Program: v.program, In: p.Bytes()})
			if err != nil {
				tb.Error(err)
				return
			}
			if got.Verdict == harness.VerdictRedirect {
				forwarded++
			}
		}
	})
	return forwarded
}

// eachEntrance runs a test with tc and with XDP, for both families.
func eachEntrance(t *testing.T, f func(t *testing.T, program string, family int)) {
	for _, program := range []string{bpf.ProgFromWire, bpf.ProgWireXdp} {
		for _, family := range fixtures.Families {
			t.Run(fmt.Sprintf("%s/IPv%d", program, family), func(t *testing.T) { f(t, program, family) })
		}
	}
}

func dropped(r *harness.Harness, tb testing.TB, program string, reason uint32) uint64 {
	tb.Helper()
	return r.Counters(tb)[program+" "+flow.DropReason(reason).String()].Packets
}

// With all NAT ports in use, new connections are dropped and counted; existing ones continue.
func TestNodePortWithoutPorts(t *testing.T) {
	eachEntrance(t, func(t *testing.T, program string, family int) {
		const ports, more = 8, 5
		r := harness.NewServices(t, config.Datapath{NATPorts: localport.Range{First: 50000, Last: 50000 + ports - 1}})
		old := establish(t, r, program, family, ports)
		taken := map[uint16]bool{}
		for _, v := range old {
			taken[v.f.Node.Port()] = true
		}
		if len(taken) != ports {
			t.Errorf("%d connections have the ports %v", ports, taken)
		}
		for i := range more {
			if v := visits(r, program, family, 100+i); v.opens(t) {
				t.Errorf("connection %d has got port %d, which another one has", ports+i, v.f.Node.Port())
			}
		}
		if n := dropped(r, t, program, uint32(bpf.DropReasonDROP_NAT_PORTS_EXHAUSTED)); n != more {
			t.Errorf("%d packets are counted", n)
		}
		expectContinue(t, old)
	})
}

// With `nat` full, no new connection becomes established, which is counted; existing ones continue.
func TestNodePortConnectionsFull(t *testing.T) {
	eachEntrance(t, func(t *testing.T, program string, family int) {
		const room, more = 16, 4
		r := harness.NewServices(t, config.Datapath{Sizes: config.Sizes{NAT: 2 * room}})
		old := establish(t, r, program, family, room)
		for i := range more {
			v := visits(r, program, family, 100+i)
			if !v.opens(t) {
				t.Fatalf("the first packet of connection %d is dropped: it needs no room yet", room+i)
			}
			if v.establishes(t) {
				t.Errorf("connection %d has found room", room+i)
			}
		}
		if n := dropped(r, t, program, uint32(bpf.DropReasonDROP_NAT_TABLE_FULL)); n != more {
			t.Errorf("%d packets are counted", n)
		}
		expectContinue(t, old)
		// A closed connection frees its entry.
		if err := r.D.NAT.RemoveByKey(bpf.TupleOf(old[0].f.Client, old[0].f.Frontend, fixtures.ProtoTCP)); err != nil {
			t.Fatal(err)
		}
		if v := visits(r, program, family, 200); !v.opens(t) || !v.establishes(t) || !v.continues(t) {
			t.Error("no room is made by a connection that has ended")
		}
	})
}

// One client with all the connections that it can have leaves ports to clients of other blocks.
func TestNodePortClientLeavesPorts(t *testing.T) {
	eachEntrance(t, func(t *testing.T, program string, family int) {
		const ports, block, tries, others = 256, 64, 2000, 16
		r := harness.NewServices(t, config.Datapath{NATPorts: localport.Range{First: 50000, Last: 50000 + ports - 1}})
		var greedy []*visitor
		for i := range tries {
			// The last ports are those of the NAT range, which a connection keeps if it may.
			if v := visits(r, program, family, 50000+ports-1000-tries+i); v.opens(t) {
				if !v.establishes(t) {
					t.Fatalf("connection %d does not come about", i)
				}
				greedy = append(greedy, v)
			}
		}
		if n := len(greedy); n > ports-3*block/4 || n < ports/2 {
			t.Errorf("one client has %d connections through %d ports", n, ports)
		}
		served := 0
		for i := range others {
			v := visits(r, program, family, 0)
			source := v.f.Client.Addr().AsSlice()
			binary.BigEndian.PutUint16(source[2:], uint16(1000+i)) // IPv6: another /64
			other, _ := netip.AddrFromSlice(source)
			v.f.Client = netip.AddrPortFrom(other, 1024)
			if v.opens(t) && v.establishes(t) && v.continues(t) {
				served++
			}
		}
		if served < others/2 { // a quarter is expected to have the client's block
			t.Errorf("beside that client only %d of %d others have a connection", served, others)
		}
		for i, v := range greedy {
			if !v.continues(t) {
				t.Errorf("connection %d with port %d does not go on", i, v.f.Node.Port())
			}
		}
	})
}

// A new connection finds one of the free ports when nearly half of them are in use, whichever block its client has.
func TestNodePortFindsFreePorts(t *testing.T) {
	const ports, open, blocks = 256, 120, 4
	for _, family := range fixtures.Families {
		for secret := range uint64(2 * blocks) {
			r := harness.NewServices(t, config.Datapath{NATPorts: localport.Range{First: 50000, Last: 50000 + ports - 1}, Handled: 1 + secret})
			establish(t, r, bpf.ProgFromWire, family, open)
		}
	}
}

// A SYN flood of many sources uses all NAT ports, and no established connection loses its port to it: not one of a client
// with many connections, and not one with a port outside its block.
func TestNodePortFloodOfAllPorts(t *testing.T) {
	eachEntrance(t, func(t *testing.T, program string, family int) {
		const ports, pending, open, flood = 256, 1024, 120, 4000
		r := harness.NewServices(t, config.Datapath{NATPorts: localport.Range{First: 50000, Last: 50000 + ports - 1}, Sizes: config.Sizes{NATPending: pending}})
		old := establish(t, r, program, family, open)
		went := old[0].floods(t, flood, func(i int) netip.AddrPort {
			source := old[0].f.Client.Addr().AsSlice()
			binary.BigEndian.PutUint16(source[2:], uint16(1000+i)) // IPv6: another /64
			from, _ := netip.AddrFromSlice(source)
			return netip.AddrPortFrom(from, 1024)
		})
		if went < flood/2 { // the sources share the ports that are left
			t.Errorf("only %d of %d packets went on to the backend", went, flood)
		}
		expectContinue(t, old)
	})
}

// A SYN flood fills only `nat_pending`, whatever its sources, and established connections continue.
func TestNodePortFlood(t *testing.T) {
	eachEntrance(t, func(t *testing.T, program string, family int) {
		const pending, flood = 1024, 20000
		r := harness.NewServices(t, config.Datapath{Sizes: config.Sizes{NATPending: pending}})
		old := visits(r, program, family, 0)
		if !old.opens(t) || !old.establishes(t) {
			t.Fatal("the connection does not come about")
		}
		source := old.f.Client.Addr()
		went := old.floods(t, flood, func(i int) netip.AddrPort {
			if i%1000 == 0 {
				source = source.Next()
			}
			return netip.AddrPortFrom(source, uint16(1024+i%1000))
		})
		if went < flood*9/10 { // a client other than the flood would get through as well
			t.Errorf("only %d of %d packets went on to the backend", went, flood)
		}
		if !old.continues(t) {
			t.Error("the established connection does not go on")
		}
		for m, most := range map[*ebpf.Map]int{r.D.Objects.Maps.Nat: 2, r.D.Objects.Maps.NatPending: pending} {
			if n, err := table.Count(m); err != nil || n > most || n == 0 {
				t.Errorf("%s has %d entries: %v", m, n, err)
			}
		}
		// All of it expires.
		now, err := table.Monotonic()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.D.NAT.Expire(now + nat.UnrepliedTimeout(fixtures.ProtoTCP)); err != nil {
			t.Fatal(err)
		}
		if n, err := table.Count(r.D.Objects.Maps.NatPending); err != nil || n != 0 {
			t.Errorf("%d entries of the flood are left: %v", n, err)
		}
		if !old.continues(t) {
			t.Error("the established connection went with the flood")
		}
	})
}

// Which external clients share an owner depends on a secret of the node. All connections of one client have the same owner.
func TestOwnersAreSecret(t *testing.T) {
	owner := func(t *testing.T, cfg config.Datapath, program string, family, client int) uint32 {
		t.Helper()
		r := harness.NewServices(t, cfg)
		v := visits(r, program, family, client)
		if !v.opens(t) {
			t.Fatal("no connection comes about")
		}
		var entry bpf.NatEntry
		if err := r.D.Objects.Maps.NatPending.Lookup(bpf.TupleOf(v.f.Client, v.f.Frontend, fixtures.ProtoTCP), &entry); err != nil {
			t.Fatal(err)
		}
		return entry.Owner
	}
	eachEntrance(t, func(t *testing.T, program string, family int) {
		owners := map[uint32]bool{}
		for secret := range uint64(4) {
			cfg := config.Datapath{Handled: 1 + secret}
			one := owner(t, cfg, program, family, 1)
			if again := owner(t, cfg, program, family, 2); again != one {
				t.Errorf("owners of one client are %#x and %#x", one, again)
			}
			owners[one>>16] = true
		}
		if len(owners) < 3 { // two of four collide by chance in one of 5000 runs; the secrets are always the same
			t.Errorf("with four secrets a client has the owners %v", owners)
		}
	})
}
