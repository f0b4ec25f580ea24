package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/device"
)

// natPorts gives the translated port that each client has towards the flow's backend.
func (r *rig) natPorts(tb testing.TB, f visit) map[netip.AddrPort]uint16 {
	tb.Helper()
	ports := map[netip.AddrPort]uint16{}
	for _, m := range []*ebpf.Map{r.d.objects.maps.NatPending, r.d.objects.maps.Nat} {
		var key bpfTuple
		var value bpfNatEntry
		it := m.Iterate()
		for it.Next(&key, &value) {
			if bpfNatFlag(value.Flags)&bpfNatFlagNAT_INITIATOR != 0 && key.DestinationPort == swap16(f.frontend.Port()) {
				ports[netip.AddrPortFrom(key.Source.addr(), swap16(key.SourcePort))] = swap16(value.SourcePort)
			}
		}
		if err := it.Err(); err != nil {
			tb.Fatal(err)
		}
	}
	return ports
}

// end puts a client's connection where it is once both ends have sent FIN.
func (r *rig) end(tb testing.TB, f visit, client netip.AddrPort, port uint16) {
	tb.Helper()
	f.client, f.node = client, netip.AddrPortFrom(f.node.Addr(), port)
	maps := r.d.objects.maps
	fin := bpfNatFlagNAT_FIN
	now, err := Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	for key, value := range map[bpfTuple]bpfNatEntry{
		tupleOf(f.client, f.frontend, protoTCP): connectionOf(f.node, f.backend, fin|bpfNatFlagNAT_INITIATOR),
		tupleOf(f.backend, f.node, protoTCP):    connectionOf(f.frontend, f.client, fin),
	} {
		if err := maps.NatPending.Delete(key); err != nil {
			tb.Fatal(err)
		}
		value.Seen = uint64(now)
		if err := maps.Nat.Put(key, value); err != nil {
			tb.Fatal(err)
		}
	}
}

// A connection that has ended gives its port away when no other is left, and not before: its server may be in TIME-WAIT. Who
// opens one from the same port again gets the same one, which the server takes for what it is.
func TestPortsOfEndedConnections(t *testing.T) {
	for _, family := range families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			r := newServiceRig(t, Config{NATPorts: device.PortSpan{First: 50000, Last: 50003}})
			f := flowOf(family)
			opens := func(client netip.AddrPort) uint16 {
				r.stage.do(func() {
					_, _ = r.run(wireBrings(eth(router, nodeA.mac).ip(client.Addr(), f.frontend.Addr()).tcp(client.Port(), f.frontend.Port()).segment(tcpSYN, 1000, 0)))
				})
				port, ok := r.natPorts(t, f)[client]
				if !ok {
					t.Fatalf("client %s got no port", client)
				}
				return port
			}
			client := func(i int) netip.AddrPort { return netip.AddrPortFrom(f.client.Addr(), uint16(1000+i)) }
			first := opens(client(0))
			r.end(t, f, client(0), first)
			if again := opens(client(0)); again != first {
				t.Errorf("the same client port got port %d, before it was %d", again, first)
			}
			r.end(t, f, client(0), first)
			for i := 1; i <= 3; i++ {
				if port := opens(client(i)); port == first {
					t.Errorf("client %d got port %d of a connection that has just ended, and %d others are free", i, port, 4-i)
				}
			}
			if port := opens(client(4)); port != first {
				t.Errorf("the last client got port %d; of the one that has ended it was %d", port, first)
			}
		})
	}
}

// A server that ends a connection first takes no other client's SYN from its port for a minute, so that rests as long. Nothing has to rest where the
// client has ended it, nor where its own port is kept.
func TestPortsRest(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, program := range []string{bpfProgFromWire, bpfProgWireXdp} {
		for _, family := range families {
			f := flowOf(family)
			send, answer := r.ends(program, f)
			for _, c := range []struct {
				name string
				ends []func(byte)
				want uint8
			}{
				{"the server first", []func(byte){answer, send}, isResting},
				{"the server twice", []func(byte){answer, answer, send}, isResting},
				{"the client first", []func(byte){send, answer}, 0},
				{"the client first, the server twice", []func(byte){send, answer, answer}, 0},
			} {
				r.enter(t, f, protoTCP)
				for _, end := range c.ends {
					end(tcpFIN | tcpACK)
				}
				there, back, _ := r.established(t, f)
				if wire := uint8(flagWire); there.Flags != wire|isOpener|isFIN|c.want || back.Flags != wire|isFIN|c.want {
					t.Errorf("%s IPv%d: %s: flags are %#x and %#x", program, family, c.name, there.Flags, back.Flags)
				}
			}
		}
	}
	for _, family := range families {
		f := flowOf(family)
		f.backend, f.node = netip.AddrPortFrom(podA.addr(family), 8080), f.client // on this node: the client's address is kept
		r.enterWith(t, f, protoTCP, 0)
		p := fromPod().ip(f.backend.Addr(), f.client.Addr()).tcp(f.backend.Port(), f.client.Port()).segment(tcpFIN|tcpACK, 1000, 0)
		r.stage.do(func() { _, _ = r.run(podSends(p)) })
		if there, back, _ := r.established(t, f); there.Flags != isOpener || back.Flags != isFIN {
			t.Errorf("IPv%d, on this node: flags are %#x and %#x", family, there.Flags, back.Flags)
		}
	}
}
