package datapath

import (
	"net/netip"
	"testing"
	"time"
)

// put puts one direction of a connection into `openings`.
func (r *rig) put(tb testing.TB, key bpfTuple, value bpfNatEntry) {
	tb.Helper()
	now, err := Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	value.Seen = uint64(now / time.Nanosecond)
	if err := r.d.objects.maps.NatPending.Put(key, value); err != nil {
		tb.Fatal(err)
	}
}

// What from_wire forwards to its backend's node as it came leaves by to_wire, where that is attached, as it came.
func TestToWireLeavesDirect(t *testing.T) {
	r := newServiceRig(t, Config{DSR: true})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		r.put(t, tupleOf(f.client, f.frontend, protocol),
			connectionOf(f.client, f.backend, bpfNatFlagNAT_INITIATOR|bpfNatFlagNAT_DSR))
		r.checkOne(t, passes(name, stackSends(transport(toWire(), f.client, f.frontend))))
	})
}

// The packets of a pod that goes through the stack do so from the first to the last: the stack has limits and rules for them.
func TestThroughStackToWorld(t *testing.T) {
	r := newServiceRig(t, Config{})
	r.throughStack(t, podA, true)
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		from, to := netip.AddrPortFrom(podA.addr(family), 45001), netip.AddrPortFrom(world.addr(family), 443)
		masqueraded := connectionOf(netip.AddrPortFrom(nodeA.addr(family), 45001), to, bpfNatFlagNAT_INITIATOR)
		masqueraded.Service = 0
		r.put(t, tupleOf(from, to, protocol), masqueraded)
		r.checkOne(t, passes(name, podSends(transport(fromPod(), from, to))))
	})
}

// Half of another connection does not make one established: its answers would go to somebody else.
func TestHalvesOfDifferentConnections(t *testing.T) {
	r := newServiceRig(t, Config{})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		r.put(t, tupleOf(f.client, f.frontend, protocol), connectionOf(f.node, f.backend, bpfNatFlagNAT_INITIATOR))
		other := netip.AddrPortFrom(f.client.Addr().Next(), f.client.Port())
		r.put(t, tupleOf(f.backend, f.node, protocol), connectionOf(f.frontend, other, 0))
		r.stage.do(func() {
			_, _ = r.run(wireBrings(transport(eth(router, nodeA.mac), f.client, f.frontend)))
		})
		if n, err := countEntries(r.d.objects.maps.Nat); err != nil || n != 0 {
			t.Errorf("%s: %d entries count as established: %v", name, n, err)
		}
	})
}

// However much is sent that nobody answers, it fills the table of openings only.
func TestUnansweredIsNotEstablished(t *testing.T) {
	for _, dsr := range []bool{false, true} {
		r := newServiceRig(t, Config{DSR: dsr})
		flags := bpfServiceFlag(0)
		if dsr {
			flags = bpfServiceFlagSERVICE_DSR
		}
		eachTransport(func(name string, family int, _ uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
			f := flowOf(family)
			r.serve(t, f.frontend, flags, f.backend)
			r.stage.do(func() {
				for range 300 {
					_, _ = r.run(wireBrings(transport(eth(router, nodeA.mac), f.client, f.frontend)))
				}
			})
			n, err := countEntries(r.d.objects.maps.Nat)
			if err != nil || n != 0 {
				t.Errorf("%s, dsr=%t: %d entries count as established: %v", name, dsr, n, err)
			}
			if n, err := countEntries(r.d.objects.maps.NatPending); err != nil || n == 0 {
				t.Errorf("%s, dsr=%t: nothing is remembered: %v", name, dsr, err)
			}
		})
	}
}

// Pods reach no Service of the node's own loopback addresses by packets that they make themselves.
func TestLoopbackIsNoServiceForPods(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		frontend := netip.AddrPortFrom(addr(loopback), 30080)
		r.serve(t, frontend, 0, netip.AddrPortFrom(podB.v4, 80))
		from := podA.v4
		if frontend.Addr().Is6() {
			from = podA.v6
		}
		r.checkOne(t, passes(loopback, podSends(fromPod().ip(from, frontend.Addr()).udp(45002, 30080).payload("hello"))))
	}
}
