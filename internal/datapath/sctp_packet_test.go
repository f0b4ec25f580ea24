package datapath

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
)

// association makes packets of SCTP between the ends of a flow, as they come in and as they have to leave.
type association struct{ visit }

func (a association) forth(kind byte) (in, out packet) {
	return eth(router, nodeA.mac).ip(a.client.Addr(), a.frontend.Addr()).sctp(a.client.Port(), a.frontend.Port()).chunk(kind),
		eth(nodeA.mac, nodeB.mac).ip(a.node.Addr(), a.backend.Addr()).sctp(a.node.Port(), a.backend.Port()).chunk(kind).ttl(63)
}

func (a association) back(kind byte) packet {
	return eth(nodeB.mac, nodeA.mac).ip(a.backend.Addr(), a.node.Addr()).sctp(a.backend.Port(), a.node.Port()).chunk(kind)
}

// forwards checks that a packet is redirected as another one.
func (r *rig) forwards(t *testing.T, name string, in, out packet) {
	t.Helper()
	r.checkOne(t, packetCase{name: name, run: wireBrings(in), verdict: verdictRedirect, out: out.bytes()})
}

// The checksum of SCTP is right for any ports and sizes: samePacket compares with packets that are made from scratch.
func TestSCTPChecksums(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		for i := range 400 {
			a := association{flowOf(family)}
			a.client = netip.AddrPortFrom(a.client.Addr(), uint16(1024+i*159))
			a.node = netip.AddrPortFrom(a.node.Addr(), uint16(40000+i*61))
			r.enter(t, a.visit, protoSCTP)
			size := i
			if i > 200 {
				size = i * 3
			}
			payload := string(randomBytes(size))
			in, out := a.forth(sctpData)
			r.forwards(t, fmt.Sprintf("IPv%d payload of %d bytes", family, size), in.payload(payload), out.payload(payload))
			if t.Failed() {
				return
			}
		}
	}
}

// A checksum that was wrong stays wrong, and so does one of 0 that nobody has promised to finish.
func TestSCTPWrongChecksum(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		a := association{flowOf(family)}
		r.enter(t, a.visit, protoSCTP)
		in, out := a.forth(sctpData)
		wrong, right := in.payload("hello").bytes(), out.payload("hello").bytes()
		at := ethLen + ipv4Len + 8
		if family == 6 {
			at = ethLen + ipv6Len + 8
		}
		off := bytes.Clone(wrong[at : at+4]) // what makes 0 of it
		for i := range off {
			wrong[at+i] ^= off[i]
			right[at+i] ^= off[i]
		}
		r.checkOne(t, packetCase{name: fmt.Sprintf("IPv%d", family), run: run{program: bpfProgFromWire, in: wrong}, verdict: verdictRedirect, out: right})
	}
}

// sends runs a packet through from_wire.
func (r *rig) sends(t *testing.T, p packet) outcome {
	t.Helper()
	var got outcome
	var err error
	r.stage.do(func() { got, err = r.run(wireBrings(p)) })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// associated looks for both directions of an association.
func (r *rig) associated(a association) (there, back bpfNatEntry, both bool) {
	m := r.d.objects.maps.Nat
	err1 := m.Lookup(tupleOf(a.client, a.frontend, protoSCTP), &there)
	err2 := m.Lookup(tupleOf(a.backend, a.node, protoSCTP), &back)
	return there, back, err1 == nil && err2 == nil
}

// An association begins, is established and ends as its chunks say: its four-way handshake as TCP's three, and its end as FIN of both.
func TestSCTPAssociation(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		name := fmt.Sprintf("IPv%d ", family)
		a := association{flowOf(family)}
		a.client, a.node = netip.AddrPortFrom(a.client.Addr(), 45678), netip.AddrPortFrom(a.node.Addr(), 45678)
		init, sent := a.forth(sctpInit)
		r.forwards(t, name+"INIT", init, sent)
		r.forwards(t, name+"INIT again", init, sent)
		r.sends(t, a.back(sctpInitAck))
		if _, _, both := r.associated(a); both {
			t.Errorf("%san INIT that is answered counts as established", name)
		}
		cookie, passed := a.forth(sctpCookieEcho)
		r.forwards(t, name+"COOKIE ECHO", cookie, passed)
		if _, _, both := r.associated(a); !both {
			t.Fatalf("%sit is not established", name)
		}

		// Who only guesses addresses and ports ends nothing.
		abort, _ := a.forth(sctpAbort)
		r.sends(t, abort)
		if there, _, _ := r.associated(a); there.Flags&isReset == 0 {
			t.Errorf("%sABORT is not noted", name)
		}
		r.sends(t, init)
		data, _ := a.forth(sctpData)
		r.sends(t, data)
		if there, _, both := r.associated(a); !both || there.Flags&isReset != 0 {
			t.Errorf("%sABORT of a stranger is believed: flags %x", name, there.Flags)
		}

		shutdown, _ := a.forth(sctpShutdown)
		r.sends(t, shutdown)
		r.sends(t, a.back(sctpShutdownAck))
		if there, back, both := r.associated(a); !both || there.Flags&isFIN == 0 || back.Flags&isFIN == 0 {
			t.Errorf("%sSHUTDOWN is not noted: flags %x and %x", name, there.Flags, back.Flags)
		}
		complete, _ := a.forth(sctpShutdownComplete)
		r.sends(t, complete)
		r.sends(t, init)
		if _, _, both := r.associated(a); both {
			t.Errorf("%sINIT behind SHUTDOWN of both begins nothing new", name)
		}
	}
}

// XDP leaves SCTP to tc, which translates it.
func TestSCTPAtXDP(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		a := association{flowOf(family)}
		r.enter(t, a.visit, protoSCTP)
		in, out := a.forth(sctpData)
		r.checkOne(t, untouched(fmt.Sprintf("IPv%d", family), in.bytes()))
		r.forwards(t, fmt.Sprintf("IPv%d at tc", family), in, out)
	}
}

// inPieces gives the pieces of a packet of SCTP, of which all but the last have so many bytes behind their IP headers.
func inPieces(p packet, size int) (pieces []packet) {
	body := p.transportBytes()
	for at := 0; at < len(body); at += size {
		end := min(at+size, len(body))
		piece := p.raw(protoSCTP, body[at:end]).payload("")
		pieces = append(pieces, piece.fragment(uint16(at), end < len(body)))
	}
	return pieces
}

// A packet in pieces is translated piece by piece, its checksum in the first one by the length that its chunks tell. Where they
// do not, other ports cannot be had.
func TestSCTPFragments(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		name := fmt.Sprintf("IPv%d ", family)
		a := association{flowOf(family)}
		r.enter(t, a.visit, protoSCTP)
		for _, length := range []int{1200, 1199, 1198, 1197, 4096, 70} {
			in, out := a.forth(sctpData)
			payload := string(append(randomBytes(length), make([]byte, -length&3)...)) // padded
			in, out = in.payload(payload), out.payload(payload)
			binary.BigEndian.PutUint16(in.transport[14:], uint16(4+length))
			binary.BigEndian.PutUint16(out.transport[14:], uint16(4+length))
			pieces := inPieces(in, 48)
			for i, want := range inPieces(out, 48) {
				r.forwards(t, fmt.Sprintf("%s%d bytes, piece %d", name, length, i), pieces[i], want)
			}
		}
		in, _ := a.forth(sctpData)
		whole := in.payload(string(randomBytes(104)))
		for what, chunk := range map[string][]byte{"no length": {0, 0, 0, 0}, "a length that is not": {0, 0, 0, 3}, "more chunks": bytes.Repeat([]byte{3, 0, 0, 4}, 9)} {
			body := whole.transportBytes()
			copy(body[12:], chunk)
			p := in.raw(protoSCTP, body[:48]).fragment(0, true)
			r.checkOne(t, drops(name+what, wireBrings(p), uint32(bpfDropReasonDROP_NAT_UNSUPPORTED_PROTOCOL)))
		}

		a.node, a.backend = netip.AddrPortFrom(a.node.Addr(), a.client.Port()), netip.AddrPortFrom(a.backend.Addr(), a.frontend.Port())
		r.enter(t, a.visit, protoSCTP)
		in, out := a.forth(sctpData)
		r.forwards(t, name+"the same ports", in.raw(protoSCTP, in.transport).fragment(0, true), out.raw(protoSCTP, out.transport).fragment(0, true))
	}
}

// What a pod sends to the world leaves with the node's address, and the answer finds the pod.
func TestSCTPMasqueraded(t *testing.T) {
	r := newServiceRig(t, Config{})
	for _, family := range families {
		pod, server := netip.AddrPortFrom(podA.addr(family), 1234), netip.AddrPortFrom(podT.addr(family), 3868)
		frontend := netip.AddrPortFrom(addr(map[int]string{4: "10.96.0.9", 6: "fd00:96::9"}[family]), 80)
		r.serve(t, frontend, 0, server)
		in := fromPod().ip(pod.Addr(), frontend.Addr()).sctp(pod.Port(), frontend.Port()).chunk(sctpInit).payload("parameters")
		var got outcome
		var err error
		r.stage.do(func() { got, err = r.run(podSends(in)) })
		if err != nil || got.verdict != verdictRedirect {
			t.Fatalf("IPv%d: %v, %v", family, got.verdict, err)
		}
		out := eth(tunnelSender, tunnelMAC).ip(pod.Addr(), server.Addr()).sctp(pod.Port(), server.Port()).chunk(sctpInit).payload("parameters").ttl(63)
		samePacket(t, out.bytes(), got.out)
	}
}
