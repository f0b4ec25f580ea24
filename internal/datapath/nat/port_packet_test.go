package nat_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/device/localport"
)

// natPorts returns each client's translated port towards the flow's backend.
func natPorts(r *harness.Harness, tb testing.TB, f fixtures.Visit) map[netip.AddrPort]uint16 {
	tb.Helper()
	ports := map[netip.AddrPort]uint16{}
	for _, m := range []*ebpf.Map{r.D.Objects.Maps.NatPending, r.D.Objects.Maps.Nat} {
		var key bpf.Tuple
		var value bpf.NatEntry
		it := m.Iterate()
		for it.Next(&key, &value) {
			if bpf.NatFlag(value.Flags)&bpf.NatFlagNAT_INITIATOR != 0 && key.DestinationPort == bpf.NetworkOrder(f.Frontend.Port()) {
				ports[netip.AddrPortFrom(key.Source.Addr(), bpf.NetworkOrder(key.SourcePort))] = bpf.NetworkOrder(value.SourcePort)
			}
		}
		if err := it.Err(); err != nil {
			tb.Fatal(err)
		}
	}
	return ports
}

// endRig puts a client's connection in the state after FIN of both ends.
func endRig(r *harness.Harness, tb testing.TB, f fixtures.Visit, client netip.AddrPort, port uint16) {
	tb.Helper()
	f.Client, f.Node = client, netip.AddrPortFrom(f.Node.Addr(), port)
	maps := r.D.Objects.Maps
	fin := bpf.NatFlagNAT_FIN
	now, err := table.Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	for key, value := range map[bpf.Tuple]bpf.NatEntry{
		bpf.TupleOf(f.Client, f.Frontend, fixtures.ProtoTCP): fixtures.ConnectionOf(f.Node, f.Backend, fin|bpf.NatFlagNAT_INITIATOR),
		bpf.TupleOf(f.Backend, f.Node, fixtures.ProtoTCP):    fixtures.ConnectionOf(f.Frontend, f.Client, fin),
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

// A closed connection's port is reused only when no other is free: its server may be in TIME-WAIT. A new connection
// from the same client port gets the same translated port, which the server accepts.
func TestPortsOfEndedConnections(t *testing.T) {
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			r := harness.NewServices(t, config.Datapath{NATPorts: localport.Range{First: 50000, Last: 50003}})
			f := fixtures.FlowOf(family)
			opens := func(client netip.AddrPort) uint16 {
				r.Netns.Do(func() {
					_, _ = r.Run(harness.WireBrings(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(client.Addr(), f.Frontend.Addr()).Tcp(client.Port(), f.Frontend.Port()).Segment(fixtures.TcpSYN, 1000, 0)))
				})
				port, ok := natPorts(r, t, f)[client]
				if !ok {
					t.Fatalf("client %s got no port", client)
				}
				return port
			}
			client := func(i int) netip.AddrPort { return netip.AddrPortFrom(f.Client.Addr(), uint16(1000+i)) }
			first := opens(client(0))
			endRig(r, t, f, client(0), first)
			if again := opens(client(0)); again != first {
				t.Errorf("the same client port got port %d, before it was %d", again, first)
			}
			endRig(r, t, f, client(0), first)
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

// A server that closes first accepts no other client's SYN from that port for a minute, so its entry stays in
// TIME-WAIT. None does if the client closed first, or if its own port is kept.
func TestPortsRest(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, program := range []string{bpf.ProgFromWire, bpf.ProgWireXdp} {
		for _, family := range fixtures.Families {
			f := fixtures.FlowOf(family)
			send, answer := r.Ends(program, f)
			for _, c := range []struct {
				name   string
				HasEnd []func(byte)
				want   uint8
			}{
				{"the server first", []func(byte){answer, send}, fixtures.IsResting},
				{"the server twice", []func(byte){answer, answer, send}, fixtures.IsResting},
				{"the client first", []func(byte){send, answer}, 0},
				{"the client first, the server twice", []func(byte){send, answer, answer}, 0},
			} {
				r.Enter(t, f, fixtures.ProtoTCP)
				for _, end := range c.HasEnd {
					end(fixtures.TcpFIN | fixtures.TcpACK)
				}
				there, back, _ := r.Established(t, f)
				if wire := uint8(fixtures.FlagWire); there.Flags != wire|fixtures.IsOpener|fixtures.IsFIN|c.want || back.Flags != wire|fixtures.IsFIN|c.want {
					t.Errorf("%s IPv%d: %s: flags are %#x and %#x", program, family, c.name, there.Flags, back.Flags)
				}
			}
		}
	}
	for _, family := range fixtures.Families {
		f := fixtures.FlowOf(family)
		f.Backend, f.Node = netip.AddrPortFrom(fixtures.PodA.Addr(family), 8080), f.Client // on this node: the client's address is kept
		r.EnterWith(t, f, fixtures.ProtoTCP, 0)
		p := fixtures.FromPod().Ip(f.Backend.Addr(), f.Client.Addr()).Tcp(f.Backend.Port(), f.Client.Port()).Segment(fixtures.TcpFIN|fixtures.TcpACK, 1000, 0)
		r.Netns.Do(func() { _, _ = r.Run(harness.PodSends(p)) })
		if there, back, _ := r.Established(t, f); there.Flags != fixtures.IsOpener || back.Flags != fixtures.IsFIN {
			t.Errorf("IPv%d, on this node: flags are %#x and %#x", family, there.Flags, back.Flags)
		}
	}
}
