package datapath

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// A packet is written as it is read on the wire, from the outside in:
//
//	eth(podA, gw(podA)).ipv4(podA, podB).tcp(31337, 80).payload("hi")
//
// Lengths, protocol numbers and checksums follow from what is there when bytes is called; a test that wants a
// wrong one changes the field behind it (badLength, version, …) or the bytes. Every method returns a changed
// copy: a packet that is used twice stays what it was.
type packet struct {
	dstMAC, srcMAC MAC
	etherType      uint16 // 0: follows from the network header

	src, dst   netip.Addr // invalid: no network header, payload follows at once
	hops       uint8
	version    uint8
	ihl        int    // IPv4, in words; 0: follows from options
	options    []byte // IPv4, a multiple of 4 bytes
	ident      uint16 // IPv4
	flagsOff   uint16 // IPv4 flags and fragment offset
	extensions []extension

	proto     uint8 // of the transport header
	transport []byte
	sumOffset int // of the checksum in transport; -1: none
	data      []byte
}

// extension is an IPv6 extension header: its own number and everything behind its next-header byte.
type extension struct {
	number uint8
	body   []byte
}

// IP protocol and extension header numbers (IANA).
const (
	protoHopByHop   = 0
	protoICMP       = 1
	protoTCP        = 6
	protoUDP        = 17
	protoRouting    = 43
	protoFragment   = 44
	protoICMPv6     = 58
	protoDstOptions = 60
	protoSCTP       = 132
)

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherVLAN = 0x8100
	etherIPv6 = 0x86dd
	etherMPLS = 0x8847
)

const (
	ethLen  = 14
	ipv4Len = 20
	ipv6Len = 40

	dontFragment  = 0x4000
	moreFragments = 0x2000
)

func eth(src, dst MAC) packet {
	return packet{srcMAC: src, dstMAC: dst, sumOffset: -1}
}

func (p packet) ipv4(src, dst netip.Addr) packet {
	p.src, p.dst, p.hops, p.version, p.ident, p.flagsOff = src, dst, 64, 4, 0x1234, dontFragment
	return p
}

func (p packet) ipv6(src, dst netip.Addr) packet {
	p.src, p.dst, p.hops, p.version = src, dst, 64, 6
	return p
}

// ip is ipv4 or ipv6, as the addresses are.
func (p packet) ip(src, dst netip.Addr) packet {
	if src.Is4() {
		return p.ipv4(src, dst)
	}
	return p.ipv6(src, dst)
}

func (p packet) is4() bool { return p.version == 4 }

func (p packet) ttl(n uint8) packet {
	p.hops = n
	return p
}

// macs gives the packet another Ethernet header.
func (p packet) macs(src, dst MAC) packet {
	p.srcMAC, p.dstMAC = src, dst
	return p
}

func (p packet) ether(t uint16) packet {
	p.etherType = t
	return p
}

// ipOptions puts IPv4 options into the header, padded to words with "end of options".
func (p packet) ipOptions(o ...byte) packet {
	for len(o)%4 != 0 {
		o = append(o, 0)
	}
	p.options = o
	return p
}

// extend puts an IPv6 extension header of 8 bytes before the transport header.
func (p packet) extend(number uint8) packet {
	body := make([]byte, 7) // next header comes before, length 0 means 8 bytes
	if number == protoHopByHop || number == protoDstOptions {
		body[1], body[2] = 1, 4 // PadN of 4 bytes (RFC 8200, 4.2)
	}
	p.extensions = append(p.extensions[:len(p.extensions):len(p.extensions)], extension{number, body})
	return p
}

// fragment makes the packet the piece at a byte offset (a multiple of 8) of a larger one.
func (p packet) fragment(offset uint16, more bool) packet {
	if p.is4() {
		p.flagsOff = offset / 8
		if more {
			p.flagsOff |= moreFragments
		}
	} else {
		body := make([]byte, 7)
		field := offset
		if more {
			field |= 1
		}
		binary.BigEndian.PutUint16(body[1:], field)
		binary.BigEndian.PutUint32(body[3:], 0xbeef)
		p.extensions = append(p.extensions[:len(p.extensions):len(p.extensions)], extension{protoFragment, body})
	}
	if offset > 0 {
		p.data = append(append([]byte{}, p.transport...), p.data...)
		p.transport, p.sumOffset = nil, -1 // a later fragment has no transport header
	}
	return p
}

func (p packet) tcp(src, dst uint16) packet { return p.tcpOptions(src, dst, nil) }

// tcpOptions is a TCP header with options, a multiple of 4 bytes.
func (p packet) tcpOptions(src, dst uint16, options []byte) packet {
	h := make([]byte, 20+len(options))
	binary.BigEndian.PutUint16(h[0:], src)
	binary.BigEndian.PutUint16(h[2:], dst)
	binary.BigEndian.PutUint32(h[4:], 0x01020304)
	h[12] = byte(len(h)/4) << 4
	h[13] = 0x18 // PSH, ACK
	binary.BigEndian.PutUint16(h[14:], 0xffff)
	copy(h[20:], options)
	p.proto, p.transport, p.sumOffset = protoTCP, h, 16
	return p
}

func (p packet) udp(src, dst uint16) packet {
	h := make([]byte, 8)
	binary.BigEndian.PutUint16(h[0:], src)
	binary.BigEndian.PutUint16(h[2:], dst)
	p.proto, p.transport, p.sumOffset = protoUDP, h, 6
	return p
}

// The types of chunks of SCTP (RFC 9260, 3.2).
const (
	sctpData             = 0
	sctpInit             = 1
	sctpInitAck          = 2
	sctpAbort            = 6
	sctpShutdown         = 7
	sctpShutdownAck      = 8
	sctpCookieEcho       = 10
	sctpShutdownComplete = 14
)

// sctp is the common header of SCTP and that of a chunk, of data.
func (p packet) sctp(src, dst uint16) packet {
	h := make([]byte, 16)
	binary.BigEndian.PutUint16(h[0:], src)
	binary.BigEndian.PutUint16(h[2:], dst)
	binary.BigEndian.PutUint32(h[4:], 0x01020304) // the verification tag
	p.proto, p.transport, p.sumOffset = protoSCTP, h, 8
	return p
}

// chunk makes the chunk of a packet of SCTP another one.
func (p packet) chunk(kind byte) packet {
	p.transport = append([]byte{}, p.transport...)
	p.transport[12] = kind
	return p
}

// echo is an ICMP or ICMPv6 echo request.
func (p packet) echo() packet {
	if p.is4() {
		return p.icmp(8, 0)
	}
	return p.icmp(128, 0)
}

func (p packet) icmp(kind, code uint8) packet {
	p.proto, p.transport, p.sumOffset = protoICMPv6, []byte{kind, code, 0, 0, 0, 7, 0, 1}, 2
	if p.is4() {
		p.proto = protoICMP
	}
	return p
}

// raw is any other transport protocol.
func (p packet) raw(proto uint8, header []byte) packet {
	p.proto, p.transport, p.sumOffset = proto, header, -1
	return p
}

func (p packet) payload(s string) packet {
	p.data = []byte(s)
	return p
}

// sized pads the payload until the packet has n bytes without its Ethernet header.
func (p packet) sized(n int) packet {
	p.data = nil
	p.data = make([]byte, n-(len(p.bytes())-ethLen))
	for i := range p.data {
		p.data[i] = byte(i)
	}
	return p
}

func (p packet) bytes() []byte {
	out := append(append([]byte{}, p.dstMAC[:]...), p.srcMAC[:]...)
	etherType := p.etherType
	if etherType == 0 {
		etherType = etherIPv6
		if p.is4() {
			etherType = etherIPv4
		}
	}
	out = binary.BigEndian.AppendUint16(out, etherType)
	if !p.src.IsValid() {
		return append(out, p.data...)
	}
	body := p.transportBytes()
	if p.src.Is4() {
		return append(append(out, p.ipv4Header(len(body))...), body...)
	}
	return append(append(out, p.ipv6Header(len(body))...), body...)
}

func (p packet) ipv4Header(payload int) []byte {
	h := make([]byte, ipv4Len, ipv4Len+len(p.options))
	h = append(h, p.options...)
	ihl := p.ihl
	if ihl == 0 {
		ihl = len(h) / 4
	}
	h[0] = p.version<<4 | byte(ihl)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+payload))
	binary.BigEndian.PutUint16(h[4:], p.ident)
	binary.BigEndian.PutUint16(h[6:], p.flagsOff)
	h[8], h[9] = p.hops, p.proto
	copy(h[12:], p.src.AsSlice())
	copy(h[16:], p.dst.AsSlice())
	binary.BigEndian.PutUint16(h[10:], ^checksum(h))
	return h
}

func (p packet) ipv6Header(payload int) []byte {
	var ext []byte
	for i, e := range p.extensions {
		next := p.proto
		if i+1 < len(p.extensions) {
			next = p.extensions[i+1].number
		}
		ext = append(append(ext, next), e.body...)
	}
	h := make([]byte, ipv6Len)
	h[0] = p.version << 4
	binary.BigEndian.PutUint16(h[4:], uint16(len(ext)+payload))
	h[6], h[7] = p.proto, p.hops
	if len(p.extensions) > 0 {
		h[6] = p.extensions[0].number
	}
	copy(h[8:], p.src.AsSlice())
	copy(h[24:], p.dst.AsSlice())
	return append(h, ext...)
}

func (p packet) transportBytes() []byte {
	b := append(append([]byte{}, p.transport...), p.data...)
	if p.proto == protoUDP && p.sumOffset >= 0 {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	}
	if p.sumOffset < 0 {
		return b
	}
	if p.proto == protoSCTP {
		if binary.BigEndian.Uint16(b[14:]) == 0 { // the length of the chunk, which is all
			binary.BigEndian.PutUint16(b[14:], uint16(len(b)-12))
		}
		binary.LittleEndian.PutUint32(b[p.sumOffset:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		return b
	}
	var pseudo []byte
	if p.proto != protoICMP {
		pseudo = append(append(pseudo, p.src.AsSlice()...), p.dst.AsSlice()...)
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(b)))
		pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(p.proto))
	}
	binary.BigEndian.PutUint16(b[p.sumOffset:], ^checksum(pseudo, b))
	return b
}

// checksum is the ones' complement sum of RFC 1071 over parts, each of which but the last is even in length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, b := range parts {
		for ; len(b) > 1; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
