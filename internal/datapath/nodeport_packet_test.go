package datapath

import (
	"net/netip"
	"testing"
	"time"
)

// expired is the answer to a packet that has no hop left.
func expired(in packet) []byte {
	if in.is4() {
		return errorAbout(in, 11, 0, 0)
	}
	return errorAbout(in, 3, 0, 0)
}

// What would be translated but for its last hop is answered as by any router: the stack would take it for its own, refuse it, and so
// end the connection.
func TestNodePortLastHop(t *testing.T) {
	r := newServiceRig(t, Config{})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		other := netip.AddrPortFrom(f.client.Addr(), f.client.Port()+1)
		r.enter(t, f, protocol)
		for what, p := range map[string]packet{
			"known":  transport(eth(router, nodeA.mac), f.client, f.frontend),
			"answer": transport(eth(nodeB.mac, nodeA.mac), f.backend, f.node),
			"new":    transport(eth(router, nodeA.mac), other, f.frontend),
		} {
			r.checkOne(t, answered(name+" "+what, wireBrings(p.ttl(1)), expired(p.ttl(1))))
			r.checkOne(t, answered(name+" "+what+", no hop", wireBrings(p.ttl(0)), expired(p.ttl(0))))
		}
		pod := netip.AddrPortFrom(podA.addr(family), 45001)
		service := transport(fromPod(), pod, f.frontend).ttl(1)
		r.checkOne(t, answered(name+" of a pod to a Service", podSends(service), expired(service)))
		// What a pod sends to the world is the stack's to answer, with the address that it has towards pods.
		r.checkOne(t, passes(name+" of a pod to the world", podSends(transport(fromPod(), pod, netip.AddrPortFrom(world.addr(family), 443)).ttl(1))))
	})
}

// established looks for both directions of a flow among the established connections.
func (r *rig) established(tb testing.TB, f visit) (there, back bpfNatEntry, both bool) {
	tb.Helper()
	m := r.d.objects.maps.Nat
	err1 := m.Lookup(tupleOf(f.client, f.frontend, protoTCP), &there)
	err2 := m.Lookup(tupleOf(f.backend, f.node, protoTCP), &back)
	return there, back, err1 == nil && err2 == nil
}

// setSeen says of both directions of a flow when they were seen.
func (r *rig) setSeen(tb testing.TB, f visit, there, back uint64) {
	tb.Helper()
	t, b, _ := r.established(tb, f)
	t.Seen, b.Seen = there, back
	for key, value := range map[bpfTuple]bpfNatEntry{tupleOf(f.client, f.frontend, protoTCP): t, tupleOf(f.backend, f.node, protoTCP): b} {
		if err := r.d.objects.maps.Nat.Put(key, value); err != nil {
			tb.Fatal(err)
		}
	}
}

// ends are the two ends of a flow, which send segments with flags that a program at the uplink gets.
func (r *rig) ends(program string, f visit) (send, answer func(flags byte)) {
	send = func(flags byte) {
		p := eth(router, nodeA.mac).ip(f.client.Addr(), f.frontend.Addr()).tcp(f.client.Port(), f.frontend.Port()).segment(flags, 1000, 0)
		r.stage.do(func() { _, _ = r.run(run{program: program, in: p.bytes()}) })
	}
	answer = func(flags byte) {
		p := eth(nodeB.mac, nodeA.mac).ip(f.backend.Addr(), f.node.Addr()).tcp(f.backend.Port(), f.node.Port()).segment(flags, 1000, 0)
		r.stage.do(func() { _, _ = r.run(run{program: program, in: p.bytes()}) })
	}
	return send, answer
}

// Who only guesses addresses and ports ends no connection, neither by RST nor by a SYN behind it. Who has ended it, or lost it, gets
// another one.
func TestNodePortGuessedReset(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, program := range []string{bpfProgFromWire, bpfProgWireXdp} {
		for _, family := range families {
			f := flowOf(family)
			send, answer := r.ends(program, f)
			begin := func() {
				r.enter(t, f, protoTCP)
				if _, _, both := r.established(t, f); !both {
					t.Fatal("it has not begun")
				}
			}
			stays := func(what string, want bool) {
				t.Helper()
				if _, _, both := r.established(t, f); both != want {
					t.Errorf("%s IPv%d: %s: it is still there: %t", program, family, what, both)
				}
			}
			begin()
			send(tcpRST)
			if there, _, _ := r.established(t, f); there.Flags&isReset == 0 {
				t.Errorf("%s IPv%d: RST is not noted", program, family)
			}
			send(tcpSYN)
			send(tcpSYN)
			stays("RST and SYN of a stranger", true)
			answer(tcpACK) // the challenge
			send(tcpPSH | tcpACK)
			if there, _, _ := r.established(t, f); there.Flags&isReset != 0 {
				t.Errorf("%s IPv%d: RST is believed, and the client goes on", program, family)
			}

			now, err := Monotonic()
			if err != nil {
				t.Fatal(err)
			}
			earlier := uint64(now - 5*time.Second)
			begin()
			r.setSeen(t, f, earlier, earlier)
			send(tcpSYN)
			stays("SYN", true)
			r.setSeen(t, f, earlier, 0)
			send(tcpSYN)
			stays("another SYN without an answer", true)
			r.setSeen(t, f, earlier, 1)
			send(tcpSYN)
			stays("three SYN without an answer", false)

			begin()
			send(tcpFIN | tcpACK)
			answer(tcpFIN | tcpACK)
			stays("FIN of both", true)
			send(tcpSYN)
			stays("SYN behind FIN of both", false)

			begin()
			answer(tcpRST)
			send(tcpSYN)
			stays("SYN behind RST of the other end", false)
		}
	}
}

// What a pod sends to its own node's NodePort is translated from its first packet on, also when the Service is gone and the
// connection is what is left.
func TestNodePortOfOwnNode(t *testing.T) {
	r := newServiceRig(t, Config{})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		pod, frontend := netip.AddrPortFrom(podA.addr(family), 45003), netip.AddrPortFrom(nodeA.addr(family), 30700+uint16(family)+uint16(protocol))
		backend := netip.AddrPortFrom(podA2.addr(family), 80)
		p := transport(fromPod(), pod, frontend)
		r.checkOne(t, passes(name+" before there is a Service", podSends(p)))
		r.serve(t, frontend, 0, backend)
		translated := transport(fromPod(), pod, backend)
		c := delivered(name, podSends(p), translated, podA2)
		c.in = p.bytes()
		r.checkOne(t, c)
		key := bpfFrontend{Address: addressOf(frontend.Addr()), Port: swap16(frontend.Port()), Protocol: protocol}
		if err := r.d.objects.maps.Services.Delete(key); err != nil {
			t.Fatal(err)
		}
		c.name += " without the Service"
		r.checkOne(t, c)
	})
}
