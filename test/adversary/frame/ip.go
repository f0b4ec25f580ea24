package frame

import (
	"encoding/binary"
	"net/netip"
)

// IPv6 extension headers (RFC 8200, 4; IANA protocol numbers).
const (
	HopByHop           = 0
	Routing            = 43
	Fragment           = 44
	NoNextHeader       = 59
	DestinationOptions = 60
)

// IP is an IPv4 or IPv6 packet; Source sets the family. Zero fields get valid values.
type IP struct {
	Source, Destination netip.Addr
	Protocol            uint8
	Payload             []byte
	// Hops is the TTL or hop limit, 64 if zero.
	Hops uint8
	// Options of IPv4; the caller pads them to four bytes.
	Options []byte
	// ID, Offset (in bytes) and More make an IPv4 fragment.
	ID     uint16
	Offset int
	More   bool
	// Whole sets DF in an IPv4 packet.
	Whole bool
	// Length, if set, overrides the header's total length (IPv4) or payload length (IPv6).
	Length int
	// Trailer follows the packet in the frame, after its stated length.
	Trailer []byte
}

// Packet returns the bytes.
func (ip IP) Packet() []byte {
	if ip.Hops == 0 {
		ip.Hops = 64
	}
	if ip.Source.Is4() {
		return ip.packet4()
	}
	return ip.packet6()
}

func (ip IP) packet4() []byte {
	const plain = 20
	header := make([]byte, plain, plain+len(ip.Options))
	header = append(header, ip.Options...)
	header[0] = 4<<4 | byte(len(header)/4)
	length := ip.Length
	if length == 0 {
		length = len(header) + len(ip.Payload)
	}
	binary.BigEndian.PutUint16(header[2:], uint16(length))
	binary.BigEndian.PutUint16(header[4:], ip.ID)
	fragment := uint16(ip.Offset / 8)
	if ip.More {
		fragment |= 0x2000
	}
	if ip.Whole {
		fragment |= 0x4000
	}
	binary.BigEndian.PutUint16(header[6:], fragment)
	header[8], header[9] = ip.Hops, ip.Protocol
	copy(header[12:], ip.Source.AsSlice())
	copy(header[16:], ip.Destination.AsSlice())
	binary.BigEndian.PutUint16(header[10:], Checksum(header))
	return append(append(header, ip.Payload...), ip.Trailer...)
}

func (ip IP) packet6() []byte {
	header := make([]byte, 40)
	header[0] = 6 << 4
	length := ip.Length
	if length == 0 {
		length = len(ip.Payload)
	}
	binary.BigEndian.PutUint16(header[4:], uint16(length))
	header[6], header[7] = ip.Protocol, ip.Hops
	source, destination := ip.Source.As16(), ip.Destination.As16()
	copy(header[8:], source[:])
	copy(header[24:], destination[:])
	return append(append(header, ip.Payload...), ip.Trailer...)
}

// Extension returns an IPv6 options header: next header, then data, padded to eight bytes with PadN.
func Extension(next uint8, data []byte) []byte {
	h := append([]byte{next, 0}, data...)
	if short := (8 - len(h)%8) % 8; short == 1 {
		h = append(h, 0) // Pad1
	} else if short > 1 {
		h = append(append(h, 1, byte(short-2)), make([]byte, short-2)...)
	}
	h[1] = byte(len(h)/8 - 1)
	return h
}

// RoutingHeader returns an IPv6 routing header of a type with these addresses and segments left.
func RoutingHeader(next, kind, left uint8, addresses ...netip.Addr) []byte {
	h := []byte{next, byte(2 * len(addresses)), kind, left, 0, 0, 0, 0}
	for _, a := range addresses {
		h = append(h, a.AsSlice()...)
	}
	return h
}

// FragmentHeader returns that of IPv6; the offset is in bytes.
func FragmentHeader(next uint8, offset int, more bool, id uint32) []byte {
	h := binary.BigEndian.AppendUint16([]byte{next, 0}, uint16(offset))
	if more {
		h[3] |= 1
	}
	return binary.BigEndian.AppendUint32(h, id)
}

// Piece returns the fragment that carries data[from:to] of the transport payload. IPv6 fragments get a fragment
// header.
func (ip IP) Piece(data []byte, from, to int, id uint16) IP {
	more := to < len(data)
	ip.Payload = data[from:to]
	if ip.Source.Is4() {
		ip.ID, ip.Offset, ip.More = id, from, more
		return ip
	}
	ip.Payload = append(FragmentHeader(ip.Protocol, from, more, uint32(id)), ip.Payload...)
	ip.Protocol = Fragment
	return ip
}

// Source returns the source address of the IP packet in an Ethernet frame; the zero Addr if there is none.
func Source(frame []byte) netip.Addr {
	const ethernet, address4, address6 = 14, 12, 8
	switch {
	case len(frame) >= ethernet+20 && frame[ethernet]>>4 == 4:
		at := frame[ethernet+address4:]
		return netip.AddrFrom4([4]byte(at[:4]))
	case len(frame) >= ethernet+40 && frame[ethernet]>>4 == 6:
		at := frame[ethernet+address6:]
		return netip.AddrFrom16([16]byte(at[:16]))
	}
	return netip.Addr{}
}
