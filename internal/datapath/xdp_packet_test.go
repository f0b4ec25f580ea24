package datapath

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// visit is one connection of the client `world` as wire_xdp sees it.
type visit struct {
	client, frontend, node, backend netip.AddrPort
}

// flowOf is a connection through node A's NodePort to podB, in a family.
func flowOf(family int) visit {
	return visit{
		client:   netip.AddrPortFrom(world.addr(family), 40001),
		frontend: netip.AddrPortFrom(nodeA.addr(family), 30080),
		node:     netip.AddrPortFrom(nodeA.addr(family), 50002),
		backend:  netip.AddrPortFrom(podB.addr(family), 8080),
	}
}

func tupleOf(from, to netip.AddrPort, protocol uint8) bpfTuple {
	return bpfTuple{Source: addressOf(from.Addr()), Destination: addressOf(to.Addr()),
		SourcePort: swap16(from.Port()), DestinationPort: swap16(to.Port()), Protocol: protocol}
}

func connectionOf(from, to netip.AddrPort, flags bpfNatFlag) bpfNatEntry {
	return bpfNatEntry{Source: addressOf(from.Addr()), Destination: addressOf(to.Addr()),
		SourcePort: swap16(from.Port()), DestinationPort: swap16(to.Port()), Service: 1, Flags: uint8(flags), Packets: 1}
}

// swap16 gives a number in network byte order.
func swap16(n uint16) uint16 { return n<<8 | n>>8 }

const flagWire = bpfNatFlagNAT_WIRE

// enter puts both directions of a flow whose packets come by wires into a table, as if it had begun just now.
func (r *rig) enter(tb testing.TB, f visit, protocol uint8) {
	tb.Helper()
	r.enterWith(tb, f, protocol, flagWire)
}

// enterWith puts both directions of a flow into a table, as if it had begun just now, with more flags.
func (r *rig) enterWith(tb testing.TB, f visit, protocol uint8, flags bpfNatFlag) {
	tb.Helper()
	now, err := Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	forth := connectionOf(f.node, f.backend, flags|bpfNatFlagNAT_INITIATOR)
	back := connectionOf(f.frontend, f.client, flags)
	forth.Seen, back.Seen = uint64(now), uint64(now)
	for key, value := range map[bpfTuple]bpfNatEntry{
		tupleOf(f.client, f.frontend, protocol): forth,
		tupleOf(f.backend, f.node, protocol):    back,
	} {
		if err := r.d.objects.maps.Nat.Put(key, value); err != nil {
			tb.Fatal(err)
		}
	}
}

// newServiceRig is node A with Services, one uplink and a NodePort whose backend is podB.
func newServiceRig(tb testing.TB, cfg Config) *rig {
	tb.Helper()
	cfg.Services, cfg.EBPFRouting, cfg.Masquerade = true, true, true
	r := newRig(tb, cfg)
	if _, err := r.d.Uplinks.Sync(map[int]Uplink{r.stage.devices["eth0"]: {IPv4: nodeA.v4, IPv6: nodeA.v6, MAC: nodeA.mac, MTU: 1500}}); err != nil {
		tb.Fatal(err)
	}
	for _, family := range families {
		r.serve(tb, flowOf(family).frontend, 0, flowOf(family).backend)
	}
	return r
}

// serve makes every protocol of a frontend answer with these backends, on both sides.
func (r *rig) serve(tb testing.TB, frontend netip.AddrPort, flags bpfServiceFlag, backends ...netip.AddrPort) {
	tb.Helper()
	set := r.nextSet
	r.nextSet++
	for i, b := range backends {
		if err := r.d.objects.maps.Backends.Put(bpfBackendKey{Set: set, Index: uint32(i)},
			bpfBackend{Address: addressOf(b.Addr()), Port: swap16(b.Port())}); err != nil {
			tb.Fatal(err)
		}
	}
	s := bpfBackendSet{Id: set, Count: uint16(len(backends))}
	for _, protocol := range []uint8{protoTCP, protoUDP, protoSCTP} {
		if err := r.d.objects.maps.Services.Put(
			bpfFrontend{Address: addressOf(frontend.Addr()), Port: swap16(frontend.Port()), Protocol: protocol},
			bpfService{Id: set, Flags: uint16(flags), Internal: s, External: s}); err != nil {
			tb.Fatal(err)
		}
	}
}

// makeTransport makes a packet between two ends.
type makeTransport = func(p packet, from, to netip.AddrPort) packet

// eachTransport calls f for TCP, UDP and SCTP of both families.
func eachTransport(f func(name string, family int, protocol uint8, transport makeTransport)) {
	eachTransportAtXDP(f)
	for _, family := range families {
		f(fmt.Sprintf("IPv%d SCTP", family), family, protoSCTP, func(p packet, from, to netip.AddrPort) packet {
			return p.ip(from.Addr(), to.Addr()).sctp(from.Port(), to.Port()).payload("hello!?")
		})
	}
}

// eachTransportAtXDP calls f for those that XDP knows.
func eachTransportAtXDP(f func(name string, family int, protocol uint8, transport makeTransport)) {
	for _, family := range families {
		f(fmt.Sprintf("IPv%d TCP", family), family, protoTCP, func(p packet, from, to netip.AddrPort) packet {
			return p.ip(from.Addr(), to.Addr()).tcp(from.Port(), to.Port()).payload("hello")
		})
		f(fmt.Sprintf("IPv%d UDP", family), family, protoUDP, func(p packet, from, to netip.AddrPort) packet {
			return p.ip(from.Addr(), to.Addr()).udp(from.Port(), to.Port()).payload("hello!")
		})
	}
}

// turned is a packet that XDP sends on.
func turned(name string, in, out packet) packetCase {
	return packetCase{name: name, run: run{program: bpfProgWireXdp, in: in.bytes()}, verdict: verdictRedirect, out: out.bytes()}
}

func untouched(name string, in []byte) packetCase {
	return passes(name, run{program: bpfProgWireXdp, in: in})
}

// Packets of known connections turn round, translated, with one hop less and right checksums: samePacket compares
// with packets that are made from scratch.
func TestXDPKnownConnections(t *testing.T) {
	r := newServiceRig(t, Config{})
	var cases []packetCase
	eachTransportAtXDP(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		r.enter(t, f, protocol)
		forth := transport(eth(router, nodeA.mac), f.client, f.frontend)
		sent := transport(eth(nodeA.mac, nodeB.mac), f.node, f.backend).ttl(63)
		cases = append(cases,
			turned(name+" to the backend", forth, sent),
			turned(name+" of the way's MTU", forth.sized(remoteMTU), sent.sized(remoteMTU)),
			turned(name+" with two hops left", forth.ttl(2), sent.ttl(1)),
			untouched(name+" larger than the way's MTU", forth.sized(remoteMTU+1).bytes()),
			untouched(name+" with its last hop", forth.ttl(1).bytes()),
			untouched(name+" with no hop left", forth.ttl(0).bytes()),
			untouched(name+" in a frame for another host", forth.macs(router, nodeB.mac).bytes()),
			untouched(name+" in a frame for all", forth.macs(router, MAC{255, 255, 255, 255, 255, 255}).bytes()),
			untouched(name+" of no Service", transport(eth(router, nodeA.mac), f.client, netip.AddrPortFrom(nodeA.addr(family), 22)).bytes()),
			untouched(name+" to a port that no connection has", transport(eth(nodeB.mac, nodeA.mac), f.backend, netip.AddrPortFrom(nodeA.addr(family), 50003)).bytes()),
			untouched(name+" to a pod", transport(eth(nodeB.mac, nodeA.mac), f.backend, netip.AddrPortFrom(podA.addr(family), 80)).bytes()),
			untouched(name+" in the first fragment", forth.payload("12345678").fragment(0, true).bytes()),
			untouched(name+" in a later fragment", forth.payload("12345678").fragment(8, false).bytes()),
		)
	})
	// Where the kernel's routes lead, about one packet in a second goes by the kernel itself: see wire_xdp_nexthop.
	eachTransportAtXDP(func(name string, family int, _ uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		c := turned(name+" to the client", transport(eth(nodeB.mac, nodeA.mac), f.backend, f.node), transport(eth(nodeA.mac, router), f.frontend, f.client).ttl(63))
		c.notFirst = true
		r.checkOne(t, c)
	})
	v4 := flowOf(4)
	unsummed := eth(router, nodeA.mac).ipv4(v4.client.Addr(), v4.frontend.Addr()).udp(v4.client.Port(), v4.frontend.Port()).payload("x")
	unsummed.sumOffset = -1
	none := eth(nodeA.mac, nodeB.mac).ipv4(v4.node.Addr(), v4.backend.Addr()).udp(v4.node.Port(), v4.backend.Port()).payload("x").ttl(63)
	none.sumOffset = -1
	in, out := unsummed.bytes(), none.bytes()
	in[ethLen+ipv4Len+5], out[ethLen+ipv4Len+5] = 9, 9 // the length, which nobody sets without a checksum
	cases = append(cases,
		packetCase{name: "IPv4 UDP without a checksum", run: run{program: bpfProgWireXdp, in: in}, verdict: verdictRedirect, out: out},
		untouched("IPv4 options", eth(router, nodeA.mac).ipv4(v4.client.Addr(), v4.frontend.Addr()).ipOptions(0x94, 4, 0, 0).udp(v4.client.Port(), v4.frontend.Port()).bytes()),
		untouched("ICMP", eth(router, nodeA.mac).ipv4(v4.client.Addr(), v4.frontend.Addr()).echo().bytes()),
		untouched("ARP", eth(router, nodeA.mac).ether(etherARP).payload("who has that address here?").bytes()),
		untouched("VLAN", eth(router, nodeA.mac).ether(etherVLAN).payload("\x00\x64\x08\x00E and so on and on").bytes()),
	)
	r.check(t, cases)
}

// Checksums are right for any addresses, ports and payloads, and those that were wrong stay wrong.
func TestXDPChecksums(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		for i := range 200 {
			f := flowOf(family)
			f.client = netip.AddrPortFrom(f.client.Addr(), uint16(1024+i*319))
			f.node = netip.AddrPortFrom(f.node.Addr(), uint16(40000+i*101))
			r.enter(t, f, protoUDP)
			payload := string(randomBytes(i))
			r.checkOne(t, turned(fmt.Sprintf("IPv%d payload of %d bytes", family, i),
				eth(router, nodeA.mac).ip(f.client.Addr(), f.frontend.Addr()).udp(f.client.Port(), f.frontend.Port()).payload(payload),
				eth(nodeA.mac, nodeB.mac).ip(f.node.Addr(), f.backend.Addr()).udp(f.node.Port(), f.backend.Port()).payload(payload).ttl(63)))
			if t.Failed() {
				return
			}
		}
	}
}

// The first packet to a Service begins a connection, with the client's port where that is one that translation gives, and
// the packets that follow and those that come back are of it.
func TestXDPBegins(t *testing.T) {
	r := newServiceRig(t, Config{})
	eachTransportAtXDP(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		f.client = netip.AddrPortFrom(f.client.Addr(), 45678)
		f.node = netip.AddrPortFrom(f.node.Addr(), 45678)
		first := func(p packet) packet {
			if protocol == protoTCP {
				return p.segment(tcpSYN, 1, 0)
			}
			return p
		}
		forth := transport(eth(router, nodeA.mac), f.client, f.frontend)
		sent := transport(eth(nodeA.mac, nodeB.mac), f.node, f.backend).ttl(63)
		back := turned(name+" back", transport(eth(nodeB.mac, nodeA.mac), f.backend, f.node), transport(eth(nodeA.mac, router), f.frontend, f.client).ttl(63))
		if protocol == protoTCP {
			r.checkOne(t, untouched(name+" from the middle", forth.bytes()))
		}
		r.checkOne(t, untouched(name+" back too early", back.in))
		r.checkOne(t, turned(name+" first", first(forth), first(sent)))
		r.checkOne(t, turned(name+" second", forth, sent))
		back.notFirst = true
		r.checkOne(t, back)

		// The same port of another client is taken then, so that one gets another.
		other := netip.AddrPortFrom(f.client.Addr().Next(), f.client.Port())
		in := first(transport(eth(router, nodeA.mac), other, f.frontend))
		var got outcome
		var err error
		r.stage.do(func() { got, err = r.run(run{program: bpfProgWireXdp, in: in.bytes()}) })
		if err != nil || got.verdict != verdictRedirect {
			t.Fatalf("%s: %v, %v", name, got.verdict, err)
		}
		at := ethLen + ipv4Len
		if family == 6 {
			at = ethLen + ipv6Len
		}
		port := uint16(got.out[at])<<8 | uint16(got.out[at+1])
		if port == f.client.Port() || port < 40000 {
			t.Errorf("%s: another client with port %d also got port %d", name, other.Port(), port)
		}
		samePacket(t, first(transport(eth(nodeA.mac, nodeB.mac), netip.AddrPortFrom(f.node.Addr(), port), f.backend).ttl(63)).bytes(), got.out)
	})
}

// What may only come by another way than a wire is tc's to go on with, which asks about its source: of a connection with a client or a backend behind
// a tunnel, a packet of a wire is forged.
func TestXDPOnlyWires(t *testing.T) {
	r := newServiceRig(t, Config{})
	eachTransportAtXDP(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		r.enterWith(t, f, protocol, 0)
		r.checkOne(t, untouched(name+" to the backend", transport(eth(router, nodeA.mac), f.client, f.frontend).bytes()))
		r.checkOne(t, untouched(name+" to the client", transport(eth(nodeB.mac, nodeA.mac), f.backend, f.node).bytes()))
	})
}

// Connections that tc begins say whether all their packets come by wires.
func TestConnectionsOfWires(t *testing.T) {
	for _, cfg := range []Config{{}, {DSR: true}} {
		r := newServiceRig(t, cfg)
		for _, family := range families {
			for i, c := range []struct {
				backend member
				wire    bool
			}{{podB, true}, {podT, false}, {nodeT, true}, {podA, false}} {
				frontend, client := netip.AddrPortFrom(nodeA.addr(family), uint16(30110+i)), netip.AddrPortFrom(world.addr(family), 45000)
				r.serve(t, frontend, bpfServiceFlagSERVICE_DSR, netip.AddrPortFrom(c.backend.addr(family), 80))
				p := eth(router, nodeA.mac).ip(client.Addr(), frontend.Addr()).tcp(client.Port(), frontend.Port()).segment(tcpSYN, 1, 0)
				r.stage.do(func() { _, _ = r.run(run{program: bpfProgFromWire, in: p.bytes()}) })
				var there bpfNatEntry
				if err := r.d.objects.maps.NatPending.Lookup(tupleOf(client, frontend, protoTCP), &there); err != nil {
					t.Fatalf("nothing begins to %s: %v", c.backend.addr(family), err)
				}
				if got := bpfNatFlag(there.Flags)&flagWire != 0; got != c.wire {
					t.Errorf("packets between a client outside and %s come by wires: %t", c.backend.addr(family), got)
				}
			}
		}
	}
}

// What does not leave by a wire is tc's to begin: backends here, behind tunnels and in the world, and refusing.
func TestXDPLeavesToTC(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		for i, backend := range []member{podA, podT, podT6, nodeA, world} {
			frontend := netip.AddrPortFrom(nodeA.addr(family), uint16(30100+i))
			r.serve(t, frontend, 0, netip.AddrPortFrom(backend.addr(family), 80))
			r.checkOne(t, untouched("", eth(router, nodeA.mac).ip(world.addr(family), frontend.Addr()).udp(45000, frontend.Port()).bytes()))
		}
		r.serve(t, netip.AddrPortFrom(nodeA.addr(family), 30099), 0)
		r.checkOne(t, untouched("", eth(router, nodeA.mac).ip(world.addr(family), nodeA.addr(family)).udp(45000, 30099).bytes()))
	}
	var counts []bpfServiceCount
	for id := uint32(1); id < r.nextSet; id++ {
		err := r.d.objects.maps.ServiceCounts.Lookup(id, &counts)
		for _, c := range counts {
			if err == nil && (c.Connections != 0 || c.Rejected != 0) {
				t.Errorf("Service %d counts %d connections and refused %d before tc has seen one", id, c.Connections, c.Rejected)
			}
		}
	}
}

// What no Service allows goes no further, and is counted here.
func TestXDPDrops(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		closed, elsewhere := netip.AddrPortFrom(nodeA.addr(family), 30200), netip.AddrPortFrom(nodeA.addr(family), 30201)
		r.serve(t, closed, bpfServiceFlagSERVICE_SOURCES, flowOf(family).backend)
		r.serve(t, elsewhere, 0)
		for _, protocol := range []uint8{protoTCP, protoUDP} {
			key := bpfFrontend{Address: addressOf(elsewhere.Addr()), Port: swap16(elsewhere.Port()), Protocol: protocol}
			var s bpfService
			if err := r.d.objects.maps.Services.Lookup(key, &s); err != nil {
				t.Fatal(err)
			}
			s.External.NoBackend = uint8(bpfNoBackendNO_BACKEND_DROP)
			if err := r.d.objects.maps.Services.Put(key, s); err != nil {
				t.Fatal(err)
			}
		}
		to := func(f netip.AddrPort) run {
			return run{program: bpfProgWireXdp, in: eth(router, nodeA.mac).ip(world.addr(family), f.Addr()).udp(45000, f.Port()).bytes()}
		}
		r.checkOne(t, drops("", to(closed), uint32(bpfDropReasonDROP_SOURCE_NOT_ALLOWED)))
		r.checkOne(t, drops("", to(elsewhere), uint32(bpfDropReasonDROP_NO_LOCAL_BACKEND)))
	}
}

// What the agent does not vouch for is not sent by its tables.
func TestXDPLease(t *testing.T) {
	r := newServiceRig(t, Config{})
	f := flowOf(4)
	r.enter(t, f, protoUDP)
	in := eth(router, nodeA.mac).ip(f.client.Addr(), f.frontend.Addr()).udp(f.client.Port(), f.frontend.Port())
	if err := r.d.Lease.Renew(-time.Second); err != nil {
		t.Fatal(err)
	}
	r.checkOne(t, untouched("lease is over", in.bytes()))
}
