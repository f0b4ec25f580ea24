package conflict

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Neighbour discovery (RFC 4861): offsets from the start of the frame. The IPv6 header has no extension headers.
const (
	ipv6Header       = ethernetHeader
	ipv6NextHeader   = ipv6Header + 6
	ipv6HopLimit     = ipv6Header + 7
	ipv6Source       = ipv6Header + 8
	icmpMessage      = ipv6Header + 40
	neighbourTarget  = icmpMessage + 8
	neighbourLength  = icmpMessage + 24
	solicit          = 135
	advertise        = 136
	overrideFlag     = 0x20 // of an advertisement: replace a cached MAC
	targetMACOption  = 2
	discoveryHops    = 255 // a router would have lowered it
	allNodes         = "ff02::1"
	solicitedNodes   = "\xff\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\xff"
	solicitedNodeLen = 13
)

// solicitation asks with source :: whether anybody has an address (RFC 4862, 5.4.2).
func solicitation(own net.HardwareAddr, a netip.Addr) []byte {
	target := a.As16()
	group := netip.AddrFrom16([16]byte(append([]byte(solicitedNodes), target[solicitedNodeLen:]...)))
	return neighbourFrame(own, netip.IPv6Unspecified(), group, append([]byte{solicit, 0, 0, 0, 0, 0, 0, 0}, target[:]...))
}

// advertisement is unsolicited and tells all nodes the MAC of an address (RFC 4861, 7.2.6).
func advertisement(own net.HardwareAddr, a netip.Addr) []byte {
	target := a.As16()
	message := append([]byte{advertise, 0, 0, 0, overrideFlag, 0, 0, 0}, target[:]...)
	message = append(append(message, targetMACOption, 1), own...)
	return neighbourFrame(own, a, netip.MustParseAddr(allNodes), message)
}

func neighbourFrame(own net.HardwareAddr, from, group netip.Addr, message []byte) []byte {
	source, destination := from.As16(), group.As16()
	binary.BigEndian.PutUint16(message[2:], icmpChecksum(source, destination, message))
	frame := ethernet(append([]byte{0x33, 0x33}, destination[12:]...), own, unix.ETH_P_IPV6)
	frame = append(frame, 0x60, 0, 0, 0, 0, byte(len(message)), unix.IPPROTO_ICMPV6, discoveryHops)
	frame = append(append(frame, source[:]...), destination[:]...)
	return append(frame, message...)
}

// icmpChecksum is the checksum of an ICMPv6 message whose checksum field is zero, with the pseudo header of RFC 8200, 8.1. The message
// has an even number of bytes.
func icmpChecksum(source, destination [16]byte, message []byte) uint16 {
	sum := uint32(len(message)) + unix.IPPROTO_ICMPV6
	for _, part := range [][]byte{source[:], destination[:], message} {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// neighbourClaimant: a host claims an address with an advertisement, or with a probe of its own (RFC 4862, 5.4.3 and 5.4.4).
func neighbourClaimant(frame []byte, a netip.Addr) net.HardwareAddr {
	if len(frame) < neighbourLength || binary.BigEndian.Uint16(frame[etherTypeOffset:]) != unix.ETH_P_IPV6 ||
		frame[ipv6NextHeader] != unix.IPPROTO_ICMPV6 || frame[ipv6HopLimit] != discoveryHops ||
		netip.AddrFrom16([16]byte(frame[neighbourTarget:])) != a {
		return nil
	}
	source := netip.AddrFrom16([16]byte(frame[ipv6Source:]))
	if kind := frame[icmpMessage]; kind == advertise || kind == solicit && source.IsUnspecified() {
		return net.HardwareAddr(frame[macLength : 2*macLength])
	}
	return nil
}
