package datapath

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

// sourceOf gives the source of a TCP or UDP packet without IPv4 options and extension headers.
func sourceOf(family int, p []byte) netip.AddrPort {
	at, transport := ethLen+12, ethLen+ipv4Len
	if family == 6 {
		at, transport = ethLen+8, ethLen+ipv6Len
	}
	length := map[int]int{4: 4, 6: 16}[family]
	address, _ := netip.AddrFromSlice(p[at : at+length])
	return netip.AddrPortFrom(address, binary.BigEndian.Uint16(p[transport:]))
}

// brings runs a packet from the wire that must be delivered to podA, and gives its source as the pod sees it.
func (r *rig) brings(t *testing.T, name string, family int, p packet) netip.AddrPort {
	t.Helper()
	var got outcome
	var err error
	r.stage.do(func() { got, err = r.run(wireBrings(p)) })
	if err != nil || got.verdict != verdictRedirect {
		t.Fatalf("%s: %v, %v, want it to be delivered", name, got.verdict, err)
	}
	return sourceOf(family, got.out)
}

// A client of the cluster uses a NodePort, whose backend sees its address and port, and the same port of its own to the backend
// itself. The backend's answers to both would look alike, so it sees what comes second with another port.
func TestDirectBesideNodePort(t *testing.T) {
	r := newServiceRig(t, Config{})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		first := transport
		switch protocol {
		case protoTCP:
			first = func(p packet, from, to netip.AddrPort) packet { return segmentOf(p, from, to, tcpSYN) }
		case protoSCTP:
			first = func(p packet, from, to netip.AddrPort) packet {
				return p.ip(from.Addr(), to.Addr()).sctp(from.Port(), to.Port()).chunk(sctpInit)
			}
		}
		client := netip.AddrPortFrom(podB.addr(family), 35001)
		frontend, pod := netip.AddrPortFrom(nodeA.addr(family), 30081), netip.AddrPortFrom(podA.addr(family), 80)
		r.serve(t, frontend, 0, pod)
		answers := func(what string, from, to netip.AddrPort, want packet) {
			t.Helper()
			c := wired(name+" "+what, want)
			c.in = transport(fromPod(), from, to).bytes()
			r.checkOne(t, c)
		}

		if seen := r.brings(t, name+" to the NodePort", family, first(fromWire(), client, frontend)); seen != client {
			t.Fatalf("%s: the backend sees %s through the NodePort, want %s", name, seen, client)
		}
		other := r.brings(t, name+" to the pod", family, first(fromWire(), client, pod))
		if other.Addr() != client.Addr() || other.Port() == client.Port() {
			t.Fatalf("%s: the pod sees both connections of %s, the second as %s", name, client, other)
		}
		answers("answer through the NodePort", pod, client, transport(fromPod(), frontend, client))
		answers("answer of the pod", pod, other, transport(fromPod(), pod, client))
		if again := r.brings(t, name+" to the pod again", family, transport(fromWire(), client, pod)); again != other {
			t.Errorf("%s: the pod sees %s, then %s", name, other, again)
		}
	})
}

// Who has no connection but to the pod keeps its port, whatever others have.
func TestDirectWithoutClash(t *testing.T) {
	r := newServiceRig(t, Config{})
	eachTransport(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		client := netip.AddrPortFrom(podB.addr(family), 35001)
		frontend, pod := netip.AddrPortFrom(nodeA.addr(family), 30081), netip.AddrPortFrom(podA.addr(family), 80)
		r.serve(t, frontend, 0, pod)
		r.brings(t, name+" to the NodePort", family, transport(fromWire(), client, frontend))
		for what, from := range map[string]netip.AddrPort{
			"another port":   netip.AddrPortFrom(client.Addr(), client.Port()+1),
			"another client": netip.AddrPortFrom(nodeB.addr(family), client.Port()),
		} {
			r.checkOne(t, arrives(name+" "+what, transport(fromWire(), from, pod)))
			c := wired(name+" answer to "+what, transport(fromPod(), pod, from))
			r.checkOne(t, c)
		}
		other := netip.AddrPortFrom(pod.Addr(), 81)
		r.checkOne(t, arrives(name+" another port of the pod", transport(fromWire(), client, other)))
	})
}

// Who has sent to the pod itself and then through the NodePort, from the same port, goes on towards the pod with another one: UDP has no
// first packet that could say which of both an answer is for.
func TestNodePortBesideDirect(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		client := netip.AddrPortFrom(podB.addr(family), 35001)
		frontend, pod := netip.AddrPortFrom(nodeA.addr(family), 30081), netip.AddrPortFrom(podA.addr(family), 80)
		r.serve(t, frontend, 0, pod)
		sends := func(name string, to netip.AddrPort) netip.AddrPort {
			return r.brings(t, name, family, fromWire().ip(client.Addr(), to.Addr()).udp(client.Port(), to.Port()).payload("hello!"))
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
