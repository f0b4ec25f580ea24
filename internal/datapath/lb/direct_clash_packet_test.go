package lb_test

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// brings runs a packet from the wire that must be delivered to PodA, and returns its source.
func brings(r *harness.Harness, t *testing.T, name string, family int, p fixtures.Packet) netip.AddrPort {
	t.Helper()
	var got harness.Outcome
	var err error
	r.Netns.Do(func() { got, err = r.Run(harness.WireBrings(p)) })
	if err != nil || got.Verdict != harness.VerdictRedirect {
		t.Fatalf("%s: %v, %v, want it to be delivered", name, got.Verdict, err)
	}
	return fixtures.SourceOf(family, got.Out)
}

// A client in the cluster uses the same port for a NodePort whose backend sees its address, and for the backend
// directly. Replies to both would be ambiguous, so the second one gets another port.
func TestDirectBesideNodePort(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		first := transport
		switch protocol {
		case fixtures.ProtoTCP:
			first = func(p fixtures.Packet, from, to netip.AddrPort) fixtures.Packet {
				return harness.SegmentOf(p, from, to, fixtures.TcpSYN)
			}
		case fixtures.ProtoSCTP:
			first = func(p fixtures.Packet, from, to netip.AddrPort) fixtures.Packet {
				return p.Ip(from.Addr(), to.Addr()).Sctp(from.Port(), to.Port()).Chunk(fixtures.SctpInit)
			}
		}
		client := netip.AddrPortFrom(fixtures.PodB.Addr(family), 35001)
		frontend, pod := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30081), netip.AddrPortFrom(fixtures.PodA.Addr(family), 80)
		r.Serve(t, frontend, 0, pod)
		answers := func(what string, from, to netip.AddrPort, want fixtures.Packet) {
			t.Helper()
			c := harness.Wired(name+" "+what, want)
			c.In = transport(fixtures.FromPod(), from, to).Bytes()
			r.CheckOne(t, c)
		}

		if seen := brings(r, t, name+" to the NodePort", family, first(fixtures.FromWire(), client, frontend)); seen != client {
			t.Fatalf("%s: the backend sees %s through the NodePort, want %s", name, seen, client)
		}
		other := brings(r, t, name+" to the pod", family, first(fixtures.FromWire(), client, pod))
		if other.Addr() != client.Addr() || other.Port() == client.Port() {
			t.Fatalf("%s: the pod sees both connections of %s, the second as %s", name, client, other)
		}
		answers("answer through the NodePort", pod, client, transport(fixtures.FromPod(), frontend, client))
		answers("answer of the pod", pod, other, transport(fixtures.FromPod(), pod, client))
		if again := brings(r, t, name+" to the pod again", family, transport(fixtures.FromWire(), client, pod)); again != other {
			t.Errorf("%s: the pod sees %s, then %s", name, other, again)
		}
	})
}

// A client without a second connection keeps its port.
func TestDirectWithoutClash(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	fixtures.EachTransport(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		client := netip.AddrPortFrom(fixtures.PodB.Addr(family), 35001)
		frontend, pod := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30081), netip.AddrPortFrom(fixtures.PodA.Addr(family), 80)
		r.Serve(t, frontend, 0, pod)
		brings(r, t, name+" to the NodePort", family, transport(fixtures.FromWire(), client, frontend))
		for what, from := range map[string]netip.AddrPort{
			"another port":   netip.AddrPortFrom(client.Addr(), client.Port()+1),
			"another client": netip.AddrPortFrom(fixtures.NodeB.Addr(family), client.Port()),
		} {
			r.CheckOne(t, harness.Arrives(name+" "+what, transport(fixtures.FromWire(), from, pod)))
			c := harness.Wired(name+" answer to "+what, transport(fixtures.FromPod(), pod, from))
			r.CheckOne(t, c)
		}
		other := netip.AddrPortFrom(pod.Addr(), 81)
		r.CheckOne(t, harness.Arrives(name+" another port of the pod", transport(fixtures.FromWire(), client, other)))
	})
}

// A client that has sent to the pod directly and then through the NodePort, from the same port, continues towards the
// pod with another one: UDP has no SYN that could tell the replies apart.
func TestNodePortBesideDirect(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		client := netip.AddrPortFrom(fixtures.PodB.Addr(family), 35001)
		frontend, pod := netip.AddrPortFrom(fixtures.NodeA.Addr(family), 30081), netip.AddrPortFrom(fixtures.PodA.Addr(family), 80)
		r.Serve(t, frontend, 0, pod)
		sends := func(name string, to netip.AddrPort) netip.AddrPort {
			return brings(r, t, name, family, fixtures.FromWire().Ip(client.Addr(), to.Addr()).Udp(client.Port(), to.Port()).Payload("hello!"))
		}
		if seen := sends("to the pod", pod); seen != client {
			t.Errorf("IPv%d: the pod sees %s, want %s", family, seen, client)
		}
		through := sends("through the NodePort", frontend)
		if other := sends("to the pod again", pod); other == through {
			t.Errorf("IPv%d: the pod sees both as %s", family, other)
		}
	}
}
