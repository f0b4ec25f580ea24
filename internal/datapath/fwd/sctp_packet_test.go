package fwd_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// association makes packets of SCTP between the ends of a flow, as they come in and as they have to leave.
type association struct{ fixtures.Visit }

func (a association) forth(kind byte) (in, out fixtures.Packet) {
	return fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac).Ip(a.Client.Addr(), a.Frontend.Addr()).Sctp(a.Client.Port(), a.Frontend.Port()).Chunk(kind),
		fixtures.Eth(fixtures.NodeA.Mac, fixtures.NodeB.Mac).Ip(a.Node.Addr(), a.Backend.Addr()).Sctp(a.Node.Port(), a.Backend.Port()).Chunk(kind).Ttl(63)
}

func (a association) back(kind byte) fixtures.Packet {
	return fixtures.Eth(fixtures.NodeB.Mac, fixtures.NodeA.Mac).Ip(a.Backend.Addr(), a.Node.Addr()).Sctp(a.Backend.Port(), a.Node.Port()).Chunk(kind)
}

// forwards checks that a packet is redirected as another one.
func forwards(r *harness.Harness, t *testing.T, name string, in, out fixtures.Packet) {
	t.Helper()
	r.CheckOne(t, harness.PacketCase{Name: name, Run: harness.WireBrings(in), Verdict: harness.VerdictRedirect, Out: out.Bytes()})
}

// The checksum of SCTP is right for any ports and sizes: SamePacket compares with packets that are made from scratch.
func TestSCTPChecksums(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		for i := range 400 {
			a := association{fixtures.FlowOf(family)}
			a.Client = netip.AddrPortFrom(a.Client.Addr(), uint16(1024+i*159))
			a.Node = netip.AddrPortFrom(a.Node.Addr(), uint16(40000+i*61))
			r.Enter(t, a.Visit, fixtures.ProtoSCTP)
			size := i
			if i > 200 {
				size = i * 3
			}
			payload := string(netlab.RandomBytes(size))
			in, out := a.forth(fixtures.SctpData)
			forwards(r, t, fmt.Sprintf("IPv%d payload of %d bytes", family, size), in.Payload(payload), out.Payload(payload))
			if t.Failed() {
				return
			}
		}
	}
}

// A wrong checksum stays wrong, and so does one of 0 without checksum offload.
func TestSCTPWrongChecksum(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		a := association{fixtures.FlowOf(family)}
		r.Enter(t, a.Visit, fixtures.ProtoSCTP)
		in, out := a.forth(fixtures.SctpData)
		wrong, right := in.Payload("hello").Bytes(), out.Payload("hello").Bytes()
		at := fixtures.EthLen + fixtures.Ipv4Len + 8
		if family == 6 {
			at = fixtures.EthLen + fixtures.Ipv6Len + 8
		}
		off := bytes.Clone(wrong[at : at+4]) // what makes 0 of it
		for i := range off {
			wrong[at+i] ^= off[i]
			right[at+i] ^= off[i]
		}
		r.CheckOne(t, harness.PacketCase{Name: fmt.Sprintf("IPv%d", family), Run: harness.Run{Program: bpf.ProgFromWire, In: wrong}, Verdict: harness.VerdictRedirect, Out: right})
	}
}

// sends runs a packet through from_wire.
func sends(r *harness.Harness, t *testing.T, p fixtures.Packet) harness.Outcome {
	t.Helper()
	var got harness.Outcome
	var err error
	r.Netns.Do(func() { got, err = r.Run(harness.WireBrings(p)) })
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// associated looks for both directions of an association.
func associated(r *harness.Harness, a association) (there, back bpf.NatEntry, both bool) {
	m := r.D.Objects.Maps.Nat
	err1 := m.Lookup(bpf.TupleOf(a.Client, a.Frontend, fixtures.ProtoSCTP), &there)
	err2 := m.Lookup(bpf.TupleOf(a.Backend, a.Node, fixtures.ProtoSCTP), &back)
	return there, back, err1 == nil && err2 == nil
}

// An association begins, is established and ends as its chunks say: its four-way handshake as TCP's three, and its end as FIN of both.
func TestSCTPAssociation(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		name := fmt.Sprintf("IPv%d ", family)
		a := association{fixtures.FlowOf(family)}
		a.Client, a.Node = netip.AddrPortFrom(a.Client.Addr(), 45678), netip.AddrPortFrom(a.Node.Addr(), 45678)
		init, sent := a.forth(fixtures.SctpInit)
		forwards(r, t, name+"INIT", init, sent)
		forwards(r, t, name+"INIT again", init, sent)
		sends(r, t, a.back(fixtures.SctpInitAck))
		if _, _, both := associated(r, a); both {
			t.Errorf("%san INIT with a reply counts as established", name)
		}
		cookie, passed := a.forth(fixtures.SctpCookieEcho)
		forwards(r, t, name+"COOKIE ECHO", cookie, passed)
		if _, _, both := associated(r, a); !both {
			t.Fatalf("%sit is not established", name)
		}

		// Who only guesses addresses and ports ends nothing.
		abort, _ := a.forth(fixtures.SctpAbort)
		sends(r, t, abort)
		if there, _, _ := associated(r, a); there.Flags&fixtures.IsReset == 0 {
			t.Errorf("%sABORT is not noted", name)
		}
		sends(r, t, init)
		data, _ := a.forth(fixtures.SctpData)
		sends(r, t, data)
		if there, _, both := associated(r, a); !both || there.Flags&fixtures.IsReset != 0 {
			t.Errorf("%sABORT of a stranger is believed: flags %x", name, there.Flags)
		}

		shutdown, _ := a.forth(fixtures.SctpShutdown)
		sends(r, t, shutdown)
		sends(r, t, a.back(fixtures.SctpShutdownAck))
		if there, back, both := associated(r, a); !both || there.Flags&fixtures.IsFIN == 0 || back.Flags&fixtures.IsFIN == 0 {
			t.Errorf("%sSHUTDOWN is not noted: flags %x and %x", name, there.Flags, back.Flags)
		}
		complete, _ := a.forth(fixtures.SctpShutdownComplete)
		sends(r, t, complete)
		sends(r, t, init)
		if _, _, both := associated(r, a); both {
			t.Errorf("%sINIT behind SHUTDOWN of both begins nothing new", name)
		}
	}
}

// XDP leaves SCTP to tc, which translates it.
func TestSCTPAtXDP(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		a := association{fixtures.FlowOf(family)}
		r.Enter(t, a.Visit, fixtures.ProtoSCTP)
		in, out := a.forth(fixtures.SctpData)
		r.CheckOne(t, harness.Untouched(fmt.Sprintf("IPv%d", family), in.Bytes()))
		forwards(r, t, fmt.Sprintf("IPv%d at tc", family), in, out)
	}
}

// inPieces gives the pieces of a packet of SCTP, of which all but the last have so many bytes behind their IP headers.
func inPieces(p fixtures.Packet, size int) (pieces []fixtures.Packet) {
	body := p.TransportBytes()
	for at := 0; at < len(body); at += size {
		end := min(at+size, len(body))
		piece := p.Raw(fixtures.ProtoSCTP, body[at:end]).Payload("")
		pieces = append(pieces, piece.Fragment(uint16(at), end < len(body)))
	}
	return pieces
}

// A packet in pieces is translated piece by piece, its checksum in the first one by the length that its chunks tell. Where they
// do not, no other port is available.
func TestSCTPFragments(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		name := fmt.Sprintf("IPv%d ", family)
		a := association{fixtures.FlowOf(family)}
		r.Enter(t, a.Visit, fixtures.ProtoSCTP)
		for _, length := range []int{1200, 1199, 1198, 1197, 4096, 70} {
			in, out := a.forth(fixtures.SctpData)
			payload := string(append(netlab.RandomBytes(length), make([]byte, -length&3)...)) // padded
			in, out = in.Payload(payload), out.Payload(payload)
			binary.BigEndian.PutUint16(in.Transport[14:], uint16(4+length))
			binary.BigEndian.PutUint16(out.Transport[14:], uint16(4+length))
			pieces := inPieces(in, 48)
			for i, want := range inPieces(out, 48) {
				forwards(r, t, fmt.Sprintf("%s%d bytes, piece %d", name, length, i), pieces[i], want)
			}
		}
		in, _ := a.forth(fixtures.SctpData)
		whole := in.Payload(string(netlab.RandomBytes(104)))
		for what, chunk := range map[string][]byte{"no length": {0, 0, 0, 0}, "a length that is not": {0, 0, 0, 3}, "more chunks": bytes.Repeat([]byte{3, 0, 0, 4}, 9)} {
			body := whole.TransportBytes()
			copy(body[12:], chunk)
			p := in.Raw(fixtures.ProtoSCTP, body[:48]).Fragment(0, true)
			r.CheckOne(t, harness.Drops(name+what, harness.WireBrings(p), uint32(bpf.DropReasonDROP_NAT_UNSUPPORTED_PROTOCOL)))
		}

		a.Node, a.Backend = netip.AddrPortFrom(a.Node.Addr(), a.Client.Port()), netip.AddrPortFrom(a.Backend.Addr(), a.Frontend.Port())
		r.Enter(t, a.Visit, fixtures.ProtoSCTP)
		in, out := a.forth(fixtures.SctpData)
		forwards(r, t, name+"the same ports", in.Raw(fixtures.ProtoSCTP, in.Transport).Fragment(0, true), out.Raw(fixtures.ProtoSCTP, out.Transport).Fragment(0, true))
	}
}

// A pod's packets to external hosts leave with the node's address, and the reply finds the pod.
func TestSCTPMasqueraded(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	for _, family := range fixtures.Families {
		pod, server := netip.AddrPortFrom(fixtures.PodA.Addr(family), 1234), netip.AddrPortFrom(fixtures.PodT.Addr(family), 3868)
		frontend := netip.AddrPortFrom(fixtures.Addr(map[int]string{4: "10.96.0.9", 6: "fd00:96::9"}[family]), 80)
		r.Serve(t, frontend, 0, server)
		in := fixtures.FromPod().Ip(pod.Addr(), frontend.Addr()).Sctp(pod.Port(), frontend.Port()).Chunk(fixtures.SctpInit).Payload("parameters")
		var got harness.Outcome
		var err error
		r.Netns.Do(func() { got, err = r.Run(harness.PodSends(in)) })
		if err != nil || got.Verdict != harness.VerdictRedirect {
			t.Fatalf("IPv%d: %v, %v", family, got.Verdict, err)
		}
		out := fixtures.Eth(fixtures.TunnelSender, fixtures.TunnelMAC).Ip(pod.Addr(), server.Addr()).Sctp(pod.Port(), server.Port()).Chunk(fixtures.SctpInit).Payload("parameters").Ttl(63)
		fixtures.SamePacket(t, out.Bytes(), got.Out)
	}
}
