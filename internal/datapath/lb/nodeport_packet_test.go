package lb_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// expired is the answer to a packet that has no hop left.
func expired(in fixtures.Packet) []byte {
	if in.Is4() {
		return fixtures.ErrorAbout(in, 11, 0, 0)
	}
	return fixtures.ErrorAbout(in, 3, 0, 0)
}

// What would be translated but for its last hop is answered as by any router: the stack would take it for its own, refuse it, and so
// end the connection.
func TestNodePortLastHop(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		other := netip.AddrPortFrom(f.Client.Addr(), f.Client.Port()+1)
		r.Enter(t, f, protocol)
		for what, p := range map[string]fixtures.Packet{
			"known":  transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend),
			"answer": transport(fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac), f.Backend, f.Node),
			"new":    transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), other, f.Frontend),
		} {
			r.CheckOne(t, harness.Answered(name+" "+what, harness.WireBrings(p.Ttl(1)), expired(p.Ttl(1))))
			r.CheckOne(t, harness.Answered(name+" "+what+", no hop", harness.WireBrings(p.Ttl(0)), expired(p.Ttl(0))))
		}
		pod := netip.AddrPortFrom(fixtures.PodA.Addr(family), 45001)
		service := transport(fixtures.FromPod(), pod, f.Frontend).Ttl(1)
		r.CheckOne(t, harness.Answered(name+" of a pod to a Service", harness.PodSends(service), expired(service)))
		// The kernel stack replies to a pod's packet to an external host, with the node's address on the pod's link.
		r.CheckOne(t, harness.Passes(name+" of a pod to an external host", harness.PodSends(transport(fixtures.FromPod(), pod, netip.AddrPortFrom(fixtures.External.Addr(family), 443)).Ttl(1))))
	})
}

// setSeen says of both directions of a flow when they were seen.
func setSeen(r *harness.Harness, tb testing.TB, f fixtures.Visit, there, back uint64) {
	tb.Helper()
	t, b, _ := r.Established(tb, f)
	t.Seen, b.Seen = there, back
	for key, value := range map[bpf.Tuple]bpf.NatEntry{bpf.TupleOf(f.Client, f.Frontend, fixtures.ProtoTCP): t, bpf.TupleOf(f.Backend, f.Node, fixtures.ProtoTCP): b} {
		if err := r.D.Objects.Maps.Nat.Put(key, value); err != nil {
			tb.Fatal(err)
		}
	}
}

// Who only guesses addresses and ports ends no connection, neither by RST nor by a SYN behind it. Who has ended it, or lost it, gets
// another one.
func TestNodePortGuessedReset(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, program := range []string{bpf.ProgFromWire, bpf.ProgWireXdp} {
		for _, family := range fixtures.Families {
			f := fixtures.FlowOf(family)
			send, answer := r.Ends(program, f)
			begin := func() {
				r.Enter(t, f, fixtures.ProtoTCP)
				if _, _, both := r.Established(t, f); !both {
					t.Fatal("it has not begun")
				}
			}
			stays := func(what string, want bool) {
				t.Helper()
				if _, _, both := r.Established(t, f); both != want {
					t.Errorf("%s IPv%d: %s: it is still there: %t", program, family, what, both)
				}
			}
			begin()
			send(fixtures.TcpRST)
			if there, _, _ := r.Established(t, f); there.Flags&fixtures.IsReset == 0 {
				t.Errorf("%s IPv%d: RST is not noted", program, family)
			}
			send(fixtures.TcpSYN)
			send(fixtures.TcpSYN)
			stays("RST and SYN of a stranger", true)
			answer(fixtures.TcpACK) // the challenge
			send(fixtures.TcpPSH | fixtures.TcpACK)
			if there, _, _ := r.Established(t, f); there.Flags&fixtures.IsReset != 0 {
				t.Errorf("%s IPv%d: RST is believed, and the client goes on", program, family)
			}

			now, err := table.Monotonic()
			if err != nil {
				t.Fatal(err)
			}
			earlier := uint64(now - 5*time.Second)
			begin()
			setSeen(r, t, f, earlier, earlier)
			send(fixtures.TcpSYN)
			stays("SYN", true)
			setSeen(r, t, f, earlier, 0)
			send(fixtures.TcpSYN)
			stays("another SYN without an answer", true)
			setSeen(r, t, f, earlier, 1)
			send(fixtures.TcpSYN)
			stays("three SYN without an answer", false)

			begin()
			send(fixtures.TcpFIN | fixtures.TcpACK)
			answer(fixtures.TcpFIN | fixtures.TcpACK)
			stays("FIN of both", true)
			send(fixtures.TcpSYN)
			stays("SYN behind FIN of both", false)

			begin()
			answer(fixtures.TcpRST)
			send(fixtures.TcpSYN)
			stays("SYN behind RST of the other end", false)
		}
	}
}

// What a pod sends to its own node's NodePort is translated from its first packet on, also when the Service is gone and the
// connection is what is left.
func TestNodePortOfOwnNode(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		pod, frontend := netip.AddrPortFrom(fixtures.PodA.Addr(family), 45003), netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30700+uint16(family)+uint16(protocol))
		backend := netip.AddrPortFrom(fixtures.PodA2.Addr(family), 80)
		p := transport(fixtures.FromPod(), pod, frontend)
		r.CheckOne(t, harness.Passes(name+" before there is a Service", harness.PodSends(p)))
		r.Serve(t, frontend, 0, backend)
		translated := transport(fixtures.FromPod(), pod, backend)
		c := harness.Delivered(name, harness.PodSends(p), translated, fixtures.PodA2)
		c.In = p.Bytes()
		r.CheckOne(t, c)
		key := bpf.Frontend{Address: bpf.AddressOf(frontend.Addr()), Port: bpf.NetworkOrder(frontend.Port()), Protocol: protocol}
		if err := r.D.Objects.Maps.Services.Delete(key); err != nil {
			t.Fatal(err)
		}
		c.Name += " without the Service"
		r.CheckOne(t, c)
	})
}
