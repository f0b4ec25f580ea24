package frame

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Flags of TCP (RFC 9293, 3.1).
const (
	FIN = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// Segment has the fields of a TCP segment that callers set.
type Segment struct {
	Flags         uint8
	Sequence, Ack uint32
	// Words is the header length in 4-byte words, 5 if zero.
	Words uint8
}

// TCP returns a segment with its checksum.
func TCP(from, to netip.AddrPort, s Segment, data []byte) []byte {
	const header = 20
	p := make([]byte, header, header+len(data))
	binary.BigEndian.PutUint16(p, from.Port())
	binary.BigEndian.PutUint16(p[2:], to.Port())
	binary.BigEndian.PutUint32(p[4:], s.Sequence)
	binary.BigEndian.PutUint32(p[8:], s.Ack)
	if s.Words == 0 {
		s.Words = header / 4
	}
	p[12], p[13] = s.Words<<4, s.Flags
	binary.BigEndian.PutUint16(p[14:], 0xffff)
	p = append(p, data...)
	binary.BigEndian.PutUint16(p[16:], Checksum(pseudo(from.Addr(), to.Addr(), unix.IPPROTO_TCP, len(p)), p))
	return p
}

// UDP returns a datagram with its checksum.
func UDP(from, to netip.AddrPort, data []byte) []byte {
	p := make([]byte, 8, 8+len(data))
	binary.BigEndian.PutUint16(p, from.Port())
	binary.BigEndian.PutUint16(p[2:], to.Port())
	binary.BigEndian.PutUint16(p[4:], uint16(8+len(data)))
	p = append(p, data...)
	sum := Checksum(pseudo(from.Addr(), to.Addr(), unix.IPPROTO_UDP, len(p)), p)
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(p[6:], sum)
	return p
}

// ICMP returns a message of ICMP or, by the address family, ICMPv6; rest is the rest of header, the four bytes after
// the checksum.
func ICMP(from, to netip.Addr, kind, code uint8, rest uint32, data []byte) []byte {
	p := append(binary.BigEndian.AppendUint32([]byte{kind, code, 0, 0}, rest), data...)
	sum := Checksum(p)
	if from.Is6() {
		sum = Checksum(pseudo(from, to, unix.IPPROTO_ICMPV6, len(p)), p)
	}
	binary.BigEndian.PutUint16(p[2:], sum)
	return p
}

// SCTP returns a packet with one chunk and its CRC32c (RFC 9260, 3).
func SCTP(from, to uint16, chunk uint8, data []byte) []byte {
	p := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	p = append(p, make([]byte, 8)...) // verification tag, checksum
	p = append(binary.BigEndian.AppendUint16(append(p, chunk, 0), uint16(4+len(data))), data...)
	p = append(p, make([]byte, (4-len(data)%4)%4)...)
	binary.LittleEndian.PutUint32(p[8:], crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
	return p
}

// VXLAN prepends the header of RFC 7348 to a frame.
func VXLAN(vni uint32, inner []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0x08, 0, 0, 0}, vni<<8), inner...)
}

// ARP returns a packet of RFC 826 for Ethernet and IPv4; operation 1 is a request, 2 a reply.
func ARP(operation uint16, senderMAC []byte, sender netip.Addr, targetMAC []byte, target netip.Addr) []byte {
	p := binary.BigEndian.AppendUint16([]byte{0, 1, 8, 0, 6, 4}, operation)
	p = append(append(p, senderMAC...), sender.AsSlice()...)
	return append(append(p, targetMAC...), target.AsSlice()...)
}
