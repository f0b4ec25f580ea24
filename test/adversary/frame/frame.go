// Package frame builds Ethernet frames byte by byte, including invalid ones: the caller can set every length, offset
// and checksum.
package frame

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// HeaderLength is that of Ethernet, in bytes.
const HeaderLength = 14

// Ethernet prepends the link-layer header to a packet.
func Ethernet(to, from net.HardwareAddr, etherType uint16, packet []byte) []byte {
	f := append(append(make([]byte, 0, HeaderLength+len(packet)), to...), from...)
	return append(binary.BigEndian.AppendUint16(f, etherType), packet...)
}

// Tagged adds VLAN tags (IEEE 802.1Q) to a frame, the outer one first; tagType is 0x8100 or 0x88a8.
func Tagged(f []byte, tagType uint16, vlans ...uint16) []byte {
	out := append([]byte{}, f[:HeaderLength-2]...)
	for _, id := range vlans {
		out = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(out, tagType), id)
	}
	return append(out, f[HeaderLength-2:]...)
}

// EtherType returns that of the address's family.
func EtherType(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.ETH_P_IP
	}
	return unix.ETH_P_IPV6
}

// Checksum is that of RFC 1071 over all parts. Only the last part may have an odd length.
func Checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for ; len(p) > 1; p = p[2:] {
			sum += uint32(binary.BigEndian.Uint16(p))
		}
		if len(p) == 1 {
			sum += uint32(p[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// pseudo is the pseudo header of RFC 9293, 3.1, or RFC 8200, 8.1.
func pseudo(from, to netip.Addr, protocol uint8, length int) []byte {
	p := append(from.AsSlice(), to.AsSlice()...)
	if from.Is4() {
		return binary.BigEndian.AppendUint16(append(p, 0, protocol), uint16(length))
	}
	return append(binary.BigEndian.AppendUint32(p, uint32(length)), 0, 0, 0, protocol)
}
