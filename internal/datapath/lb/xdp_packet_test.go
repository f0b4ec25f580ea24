package lb_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// turned is a packet that XDP sends on.
func turned(name string, in, out fixtures.Packet) harness.PacketCase {
	return harness.PacketCase{Name: name, Run: harness.Run{Program: bpf.ProgWireXdp, In: in.Bytes()}, Verdict: harness.VerdictRedirect, Out: out.Bytes()}
}

// Packets of known connections turn round, translated, with one hop less and right checksums: SamePacket compares
// with packets that are made from scratch.
func TestXDPTrackedConnections(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	var cases []harness.PacketCase
	fixtures.EachTransportAtXDP(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		r.Enter(t, f, protocol)
		forth := transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend)
		sent := transport(fixtures.Eth(fixtures.NodeA.Mac, fixtures.NodeB.Mac), f.Node, f.Backend).Ttl(63)
		cases = append(cases,
			turned(name+" to the backend", forth, sent),
			turned(name+" of the way's MTU", forth.Sized(fixtures.RemoteMTU), sent.Sized(fixtures.RemoteMTU)),
			turned(name+" with two hops left", forth.Ttl(2), sent.Ttl(1)),
			harness.Untouched(name+" larger than the way's MTU", forth.Sized(fixtures.RemoteMTU+1).Bytes()),
			harness.Untouched(name+" with its last hop", forth.Ttl(1).Bytes()),
			harness.Untouched(name+" with no hop left", forth.Ttl(0).Bytes()),
			harness.Untouched(name+" in a frame for another host", forth.Macs(fixtures.Router, fixtures.NodeB.Mac).Bytes()),
			harness.Untouched(name+" in a frame for all", forth.Macs(fixtures.Router, fwd.MAC{255, 255, 255, 255, 255, 255}).Bytes()),
			harness.Untouched(name+" of no Service", transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, netip.AddrPortFrom(fixtures.NodeA.Addr(family), 22)).Bytes()),
			harness.Untouched(name+" to a port that no connection has", transport(fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac), f.Backend, netip.AddrPortFrom(fixtures.NodeA.Addr(family), 50003)).Bytes()),
			harness.Untouched(name+" to a pod", transport(fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac), f.Backend, netip.AddrPortFrom(fixtures.PodA.Addr(family), 80)).Bytes()),
			harness.Untouched(name+" in the first fragment", forth.Payload("12345678").Fragment(0, true).Bytes()),
			harness.Untouched(name+" in a later fragment", forth.Payload("12345678").Fragment(8, false).Bytes()),
		)
	})
	// Where the kernel's routes lead, about one packet in a second goes by the kernel itself: see wire_xdp_nexthop.
	fixtures.EachTransportAtXDP(func(name string, family int, _ uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		c := turned(name+" to the client", transport(fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac), f.Backend, f.Node), transport(fixtures.Eth(fixtures.NodeA.Mac, fixtures.Router), f.Frontend, f.Client).Ttl(63))
		c.NotFirst = true
		r.CheckOne(t, c)
	})
	v4 := fixtures.FlowOf(4)
	unsummed := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ipv4(v4.Client.Addr(), v4.Frontend.Addr()).Udp(v4.Client.Port(), v4.Frontend.Port()).Payload("x")
	unsummed.SumOffset = -1
	none := fixtures.Eth(fixtures.NodeA.Mac, fixtures.NodeB.Mac).Ipv4(v4.Node.Addr(), v4.Backend.Addr()).Udp(v4.Node.Port(), v4.Backend.Port()).Payload("x").Ttl(63)
	none.SumOffset = -1
	in, out := unsummed.Bytes(), none.Bytes()
	in[fixtures.EthLen+fixtures.Ipv4Len+5], out[fixtures.EthLen+fixtures.Ipv4Len+5] = 9, 9 // the length, without a checksum update
	cases = append(cases,
		harness.PacketCase{Name: "IPv4 UDP without a checksum", Run: harness.Run{Program: bpf.ProgWireXdp, In: in}, Verdict: harness.VerdictRedirect, Out: out},
		harness.Untouched("IPv4 options", fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ipv4(v4.Client.Addr(), v4.Frontend.Addr()).IpOptions(0x94, 4, 0, 0).Udp(v4.Client.Port(), v4.Frontend.Port()).Bytes()),
		harness.Untouched("ICMP", fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ipv4(v4.Client.Addr(), v4.Frontend.Addr()).Echo().Bytes()),
		harness.Untouched("ARP", fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ether(fixtures.EtherARP).Payload("who has that address here?").Bytes()),
		harness.Untouched("VLAN", fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ether(fixtures.EtherVLAN).Payload("\x00\x64\x08\x00E and so on and on").Bytes()),
	)
	r.Check(t, cases)
}

// Checksums are right for any addresses, ports and payloads, and wrong checksums stay wrong.
func TestXDPChecksums(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		for i := range 200 {
			f := fixtures.FlowOf(family)
			f.Client = netip.AddrPortFrom(f.Client.Addr(), uint16(1024+i*319))
			f.Node = netip.AddrPortFrom(f.Node.Addr(), uint16(40000+i*101))
			r.Enter(t, f, fixtures.ProtoUDP)
			payload := string(netlab.RandomBytes(i))
			r.CheckOne(t, turned(fmt.Sprintf("IPv%d payload of %d bytes", family, i),
				fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(f.Client.Addr(), f.Frontend.Addr()).Udp(f.Client.Port(), f.Frontend.Port()).Payload(payload),
				fixtures.Eth(fixtures.NodeA.Mac, fixtures.NodeB.Mac).Ip(f.Node.Addr(), f.Backend.Addr()).Udp(f.Node.Port(), f.Backend.Port()).Payload(payload).Ttl(63)))
			if t.Failed() {
				return
			}
		}
	}
}

// The first packet to a Service begins a connection, with the client's port where that is one that translation gives, and
// later packets in both directions belong to it.
func TestXDPBegins(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	fixtures.EachTransportAtXDP(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		f.Client = netip.AddrPortFrom(f.Client.Addr(), 45678)
		f.Node = netip.AddrPortFrom(f.Node.Addr(), 45678)
		first := func(p fixtures.Packet) fixtures.Packet {
			if protocol == fixtures.ProtoTCP {
				return p.Segment(fixtures.TcpSYN, 1, 0)
			}
			return p
		}
		forth := transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend)
		sent := transport(fixtures.Eth(fixtures.NodeA.Mac, fixtures.NodeB.Mac), f.Node, f.Backend).Ttl(63)
		back := turned(name+" back", transport(fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac), f.Backend, f.Node), transport(fixtures.Eth(fixtures.NodeA.Mac, fixtures.Router), f.Frontend, f.Client).Ttl(63))
		if protocol == fixtures.ProtoTCP {
			r.CheckOne(t, harness.Untouched(name+" from the middle", forth.Bytes()))
		}
		r.CheckOne(t, harness.Untouched(name+" back too early", back.In))
		r.CheckOne(t, turned(name+" first", first(forth), first(sent)))
		r.CheckOne(t, turned(name+" second", forth, sent))
		back.NotFirst = true
		r.CheckOne(t, back)

		// The same port of another client is taken then, so that one gets another.
		other := netip.AddrPortFrom(f.Client.Addr().Next(), f.Client.Port())
		in := first(transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), other, f.Frontend))
		var got harness.Outcome
		var err error
		r.Netns.Do(func() { got, err = r.Run(harness.Run{Program: bpf.ProgWireXdp, In: in.Bytes()}) })
		if err != nil || got.Verdict != harness.VerdictRedirect {
			t.Fatalf("%s: %v, %v", name, got.Verdict, err)
		}
		at := fixtures.EthLen + fixtures.Ipv4Len
		if family == 6 {
			at = fixtures.EthLen + fixtures.Ipv6Len
		}
		port := uint16(got.Out[at])<<8 | uint16(got.Out[at+1])
		if port == f.Client.Port() || port < 40000 {
			t.Errorf("%s: another client with port %d also got port %d", name, other.Port(), port)
		}
		fixtures.SamePacket(t, first(transport(fixtures.Eth(fixtures.NodeA.Mac, fixtures.NodeB.Mac), netip.AddrPortFrom(f.Node.Addr(), port), f.Backend).Ttl(63)).Bytes(), got.Out)
	})
}

// What may only come by another way than a wire is tc's to go on with, which asks about its source: of a connection with a client or a backend behind
// a tunnel, a packet of a wire is forged.
func TestXDPOnlyWires(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	fixtures.EachTransportAtXDP(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		r.EnterWith(t, f, protocol, 0)
		r.CheckOne(t, harness.Untouched(name+" to the backend", transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend).Bytes()))
		r.CheckOne(t, harness.Untouched(name+" to the client", transport(fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac), f.Backend, f.Node).Bytes()))
	})
}

// Table that tc begins say whether all their packets come by wires.
func TestConnectionsOfWires(t *testing.T) {
	for _, cfg := range []config.Datapath{{}, {DSR: true}} {
		r := harness.NewServices(t, cfg)
		for _, family := range fixtures.Families {
			for i, c := range []struct {
				backend fixtures.Member
				wire    bool
			}{{fixtures.PodB, true}, {fixtures.PodT, false}, {fixtures.NodeT, true}, {fixtures.PodA, false}} {
				frontend, client := netip.AddrPortFrom(fixtures.NodeA.Addr(family), uint16(30110+i)), netip.AddrPortFrom(fixtures.External.Addr(family), 45000)
				r.Serve(t, frontend, bpf.ServiceFlagSERVICE_DSR, netip.AddrPortFrom(c.backend.Addr(family), 80))
				p := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(client.Addr(), frontend.Addr()).Tcp(client.Port(), frontend.Port()).Segment(fixtures.TcpSYN, 1, 0)
				r.Netns.Do(func() { _, _ = r.Run(harness.Run{Program: bpf.ProgFromWire, In: p.Bytes()}) })
				var there bpf.NatEntry
				if err := r.D.Objects.Maps.NatPending.Lookup(bpf.TupleOf(client, frontend, fixtures.ProtoTCP), &there); err != nil {
					t.Fatalf("nothing begins to %s: %v", c.backend.Addr(family), err)
				}
				if got := bpf.NatFlag(there.Flags)&fixtures.FlagWire != 0; got != c.wire {
					t.Errorf("packets between a client outside and %s come by wires: %t", c.backend.Addr(family), got)
				}
			}
		}
	}
}

// XDP leaves to tc what does not leave by a wire: local, tunnelled and external backends, and rejections.
func TestXDPLeavesToTC(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		for i, backend := range []fixtures.Member{fixtures.PodA, fixtures.PodT, fixtures.PodT6, fixtures.NodeA, fixtures.External} {
			frontend := netip.AddrPortFrom(fixtures.NodeA.Addr(family), uint16(30100+i))
			r.Serve(t, frontend, 0, netip.AddrPortFrom(backend.Addr(family), 80))
			r.CheckOne(t, harness.Untouched("", fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(fixtures.External.Addr(family), frontend.Addr()).Udp(45000, frontend.Port()).Bytes()))
		}
		r.Serve(t, netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30099), 0)
		r.CheckOne(t, harness.Untouched("", fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(fixtures.External.Addr(family), fixtures.NodeA.Addr(family)).Udp(45000, 30099).Bytes()))
	}
	var counts []bpf.ServiceCount
	for id := uint32(1); id < r.NextSet; id++ {
		err := r.D.Objects.Maps.ServiceCounts.Lookup(id, &counts)
		for _, c := range counts {
			if err == nil && (c.Connections != 0 || c.Rejected != 0) {
				t.Errorf("Service %d counts %d connections and refused %d before tc has seen one", id, c.Connections, c.Rejected)
			}
		}
	}
}

// What no Service allows goes no further, and is counted here.
func TestXDPDrops(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		closed, elsewhere := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30200), netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30201)
		r.Serve(t, closed, bpf.ServiceFlagSERVICE_SOURCES, fixtures.FlowOf(family).Backend)
		r.Serve(t, elsewhere, 0)
		for _, protocol := range []uint8{fixtures.ProtoTCP, fixtures.ProtoUDP} {
			key := bpf.Frontend{Address: bpf.AddressOf(elsewhere.Addr()), Port: bpf.NetworkOrder(elsewhere.Port()), Protocol: protocol}
			var s bpf.Service
			if err := r.D.Objects.Maps.Services.Lookup(key, &s); err != nil {
				t.Fatal(err)
			}
			s.External.NoBackend = uint8(bpf.NoBackendNO_BACKEND_DROP)
			if err := r.D.Objects.Maps.Services.Put(key, s); err != nil {
				t.Fatal(err)
			}
		}
		to := func(f netip.AddrPort) harness.Run {
			return harness.Run{Program: bpf.ProgWireXdp, In: fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(fixtures.External.Addr(family), f.Addr()).Udp(45000, f.Port()).Bytes()}
		}
		r.CheckOne(t, harness.Drops("", to(closed), uint32(bpf.DropReasonDROP_SOURCE_NOT_ALLOWED)))
		r.CheckOne(t, harness.Drops("", to(elsewhere), uint32(bpf.DropReasonDROP_NO_LOCAL_BACKEND)))
	}
}

// What the agent does not vouch for is not sent by its tables.
func TestXDPLease(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	f := fixtures.FlowOf(4)
	r.Enter(t, f, fixtures.ProtoUDP)
	in := fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(f.Client.Addr(), f.Frontend.Addr()).Udp(f.Client.Port(), f.Frontend.Port())
	if err := r.D.Lease.Renew(-time.Second); err != nil {
		t.Fatal(err)
	}
	r.CheckOne(t, harness.Untouched("lease is over", in.Bytes()))
}
