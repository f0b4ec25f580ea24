package datapath

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

const (
	badPiece   = uint32(bpfDropReasonDROP_BAD_FRAGMENT)
	unreadable = uint32(bpfDropReasonDROP_UNREADABLE)
)

// holding makes the IP packet in a frame end after so many bytes behind its IP header: the others are what Ethernet carries on.
func holding(in run, n int) run {
	b := append([]byte{}, in.in...)
	if b[ethLen]>>4 == 4 {
		binary.BigEndian.PutUint16(b[ethLen+2:], uint16(ipv4Len+n))
		clear(b[ethLen+10 : ethLen+12])
		binary.BigEndian.PutUint16(b[ethLen+10:], ^checksum(b[ethLen:ethLen+ipv4Len]))
	} else {
		binary.BigEndian.PutUint16(b[ethLen+4:], uint16(n))
	}
	in.in = b
	return in
}

// fragmentHeader is how much of an IPv6 packet's payload its fragment header takes.
func fragmentHeader(family int) int { return (family - 4) / 2 * 8 }

// The proven attack: the first piece holds 8 bytes of TCP, and behind the IP packet there is what looks like the header of a session
// that goes on; the flags come with the second piece. Neither comes in, nor goes out.
func TestPolicyHiddenSYN(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		pod, peer := end{podA, 40000}.at(family), end{podB, 80}.at(family)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsTCP80}))
		p.allows(t, "SYN of the pod", podSends(segmentOf(fromPod(), pod, peer, tcpSYN)))
		p.allows(t, "SYN, ACK", wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN|tcpACK)))

		whole := segmentOf(fromWire(), peer, pod, tcpACK)
		for name, length := range map[string]int{"8 bytes": 8, "16 bytes": 16} {
			first := holding(wireBrings(whole.fragment(0, true)), length+fragmentHeader(family))
			p.denies(t, "a first piece of "+name, first, badPiece)
			back := holding(podSends(segmentOf(fromPod(), pod, peer, tcpACK).fragment(0, true)), length+fragmentHeader(family))
			p.denies(t, "a first piece of "+name+" of the pod", back, badPiece)
		}
		for _, offset := range []uint16{8, 16} {
			p.denies(t, "a piece that lies over the header", wireBrings(whole.fragment(offset, false)), badPiece)
		}
		long := whole
		long.transport = append([]byte{}, whole.transport...)
		long.transport[12] = 15 << 4 // 60 bytes, of which 32 are here
		p.denies(t, "a first piece without all options", wireBrings(long.payload("twelve bytes").fragment(0, true)), badPiece)
		long.transport[12] = 4 << 4
		p.denies(t, "a first piece with too short a header", wireBrings(long.payload("twelve bytes").fragment(0, true)), badPiece)

		p.forgetFragments(t)
		p.allows(t, "a first piece with the whole header", wireBrings(whole.payload("1234").fragment(0, true)))
		p.allows(t, "a later one", wireBrings(whole.payload("12345678").fragment(24, false)))
	})
}

// What other transports have to have in their first piece.
func TestPolicyShortFirstPieces(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		pod, peer := end{podA, 40000}.at(family), end{podB, 80}.at(family)
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsEvery})
		for name, c := range map[string]struct {
			in    packet
			needs int
		}{
			"UDP":  {datagram(fromWire(), peer, pod), 8},
			"SCTP": {fromWire().ip(peer.Addr(), pod.Addr()).sctp(peer.Port(), pod.Port()).payload("chunk"), 16},
			"echo": {echoOf(fromWire(), peer.Addr(), pod.Addr(), 7, false), 8},
		} {
			first := wireBrings(c.in.fragment(0, true))
			p.forgetFragments(t)
			p.denies(t, name+", cut off", holding(first, c.needs-1+fragmentHeader(family)), badPiece)
			p.allows(t, name+", whole", holding(first, c.needs+fragmentHeader(family)))
		}
	})
}

// Nothing behind the IP packet is read: not by who judges a packet, nor by a permit.
func TestPolicyTrailingBytes(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		client, server := end{podB, 40000}.at(family), end{podA, 80}.at(family)
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.allows(t, "SYN", wireBrings(segmentOf(fromWire(), client, server, tcpSYN)))
		data := wireBrings(segmentOf(fromWire(), client, server, tcpACK))
		p.allows(t, "data", data)
		p.allows(t, "data with a permit", data)
		for _, n := range []int{0, 4, 13, 19} {
			p.denies(t, "data whose header lies behind the packet", holding(data, n), noIngress)
		}
		p.allows(t, "a header and nothing else", holding(data, 20))

		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsOf53})
		query := wireBrings(datagram(fromWire(), client, end{podA, 53}.at(family)))
		p.allows(t, "a query", query)
		p.allows(t, "a query with a permit", query)
		p.denies(t, "a query whose header lies behind the packet", holding(query, 7), noIngress)

		p.govern(t, podA, policy.Sets{Ingress: rules}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsOf53}))
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		answer := datagram(eth(MAC{}, MAC{}), end{podA, 53}.at(family), client)
		about := wireBrings(quoting(fromWire(), podB.addr(family), podA.addr(family), kind, code, 0, answer, 500))
		p.allows(t, "an error about the answer", about)
		p.denies(t, "one whose quotation lies behind the packet", holding(about, len(about.in)-ethLen-p.ipHeader(family)-len("hello!")-4), noIngress)
	})
}

func (p *policyRig) ipHeader(family int) int {
	if family == 4 {
		return ipv4Len
	}
	return ipv6Len
}

// A second first piece changes nothing for the pieces of the first one; once that packet is complete its identification is free.
func TestPolicySecondFirstPiece(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsUDP})
		pieces := func(port uint16) (first, next, last run) {
			whole := datagram(fromWire(), end{podB, 40000}.at(family), end{podA, port}.at(family)).payload("sixteen bytes at least, and more")
			return wireBrings(whole.fragment(0, true)), wireBrings(whole.fragment(16, true)), wireBrings(whole.fragment(24, false))
		}
		first, next, last := pieces(53)
		other, _, _ := pieces(54)
		p.forgetFragments(t)
		p.allows(t, "the first piece", first)
		p.allows(t, "a later one", next)
		p.denies(t, "another first piece, with other ports", other, badPiece)
		p.allows(t, "the first piece once more", first)
		p.allows(t, "the last one", last)
		p.allows(t, "the first piece of the next packet", other)
	})
}

// Nobody can tell what lies behind more extension headers than are read. Pods that policies select get none of it and send none.
func TestPolicyUnreadable(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	behind := func(frame packet, from, to netip.AddrPort, extensions ...uint8) packet {
		for _, e := range extensions {
			frame = frame.extend(e)
		}
		return segmentOf(frame, from, to, tcpSYN)
	}
	client, server := end{podB, 40000}.at(6), end{podA, 80}.at(6)
	four := []uint8{protoDstOptions, protoDstOptions, protoDstOptions, protoDstOptions}
	five := append([]uint8{protoDstOptions}, four...)
	p.allows(t, "of a pod without policies", wireBrings(behind(fromWire(), client, server, five...)))
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
	p.allows(t, "four headers", wireBrings(behind(fromWire(), client, server, four...)))
	p.denies(t, "five headers", wireBrings(behind(fromWire(), client, server, five...)), unreadable)
	p.denies(t, "five headers out", podSends(behind(fromPod(), server, client, five...)), unreadable)
	p.ingress(t, map[policy.Identity]policy.Ports{idB: portsEvery})
	p.denies(t, "five headers, whatever is allowed", wireBrings(behind(fromWire(), client, server, five...)), unreadable)
	cut := wireBrings(behind(fromWire(), client, server, four...))
	p.denies(t, "cut off within the headers", holding(cut, 28), unreadable)
	twice := segmentOf(fromWire(), client, server, tcpSYN).fragment(0, true).fragment(0, true)
	p.denies(t, "two fragment headers", wireBrings(twice), badPiece)
	split := segmentOf(fromWire(), client, server, tcpSYN).fragment(0, true).extend(protoDstOptions)
	p.denies(t, "a first piece that ends within its headers", holding(wireBrings(split), 12), badPiece)
}

// Translation asks by ports as well, whether or not policies select the pod; so does XDP, which leaves to others what it cannot read.
func TestTranslationReadsNoTrailingBytes(t *testing.T) {
	p := newPolicyRig(t, Config{Services: true})
	eachTransportAtXDP(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f, pod := flowOf(family), end{podA, 40000}.at(family)
		p.enter(t, f, protocol)
		needs := 20
		if protocol == protoUDP {
			needs = 8
		}
		forth := run{program: bpfProgWireXdp, in: transport(eth(router, nodeA.mac), f.client, f.frontend).bytes()}
		for _, n := range []int{0, 4, needs - 1} {
			p.checkOne(t, untouched(name+" whose header lies behind the packet", holding(forth, n).in))
		}
		short := forth.in
		if family == 4 {
			short = append([]byte{}, short...)
			binary.BigEndian.PutUint16(short[ethLen+2:], 19)
			p.checkOne(t, untouched(name+" whose IP header lies behind the packet", short))
		}
		first := transport(fromPod(), pod, f.frontend).payload("12345678").fragment(0, true)
		p.forgetFragments(t)
		p.denies(t, name+": a first piece without its header", holding(podSends(first), needs-1+fragmentHeader(family)), badPiece)
		p.allows(t, name+": a first piece", podSends(first))
		if protocol == protoTCP {
			p.denies(t, name+": a piece over its header", podSends(transport(fromPod(), pod, f.frontend).fragment(16, false)), badPiece)
		}
	})
}
