package packetgen

import (
	"encoding/binary"
	"net"
	"net/netip"
)

// Frames are UDP frames of the shortest length Ethernet has for IPv4, 60 bytes without the check sequence, or of
// headers only for IPv6, 62 bytes. They belong to as many flows as wanted, in turn.
type Frames struct {
	SourceMAC, DestinationMAC net.HardwareAddr
	// Source is that of flow 0. Flow n has its address plus n / Ports and its port plus n % Ports.
	Source      netip.AddrPort
	Destination netip.AddrPort
	Flows       int
	// Ports is how many flows share an address.
	Ports int
}

// Lengths of frames, in bytes.
const (
	length4 = 60
	length6 = 62
	// templateLength is what the program keeps of a frame.
	templateLength = 64
)

const (
	ethernetHeader = 14
	ipv4Header     = 20
	ipv6Header     = 40
	udpHeader      = 8
	hops           = 64
	protocolUDP    = 17
)

// Length is that of each frame in bytes.
func (f Frames) Length() int {
	if f.Source.Addr().Is4() {
		return length4
	}
	return length6
}

// template is the frame of flow 0 but for what differs between flows, which is zero in it: the last four bytes of the
// source address, the source port, and the checksums. The sums are those of RFC 1071 over what the checksums cover, not
// folded, of 16-bit words in little-endian order as the program reads them.
func (f Frames) template() (frame [templateLength]byte, network, transport uint32) {
	copy(frame[:], f.DestinationMAC)
	copy(frame[6:], f.SourceMAC)
	source, destination := f.Source.Addr().AsSlice(), f.Destination.Addr().AsSlice()
	clear(source[len(source)-4:])
	ip := frame[ethernetHeader:f.Length()]
	var udp []byte
	if f.Source.Addr().Is4() {
		binary.BigEndian.PutUint16(frame[12:], 0x0800)
		udp = ip[ipv4Header:]
		ip[0] = 4<<4 | ipv4Header/4
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		const dontFragment = 0x4000
		binary.BigEndian.PutUint16(ip[6:], dontFragment)
		ip[8], ip[9] = hops, protocolUDP
		copy(ip[12:], source)
		copy(ip[16:], destination)
		network = sum(ip[:ipv4Header])
	} else {
		binary.BigEndian.PutUint16(frame[12:], 0x86dd)
		udp = ip[ipv6Header:]
		ip[0] = 6 << 4
		binary.BigEndian.PutUint16(ip[4:], uint16(len(udp)))
		ip[6], ip[7] = protocolUDP, hops
		copy(ip[8:], source)
		copy(ip[24:], destination)
	}
	binary.BigEndian.PutUint16(udp[2:], f.Destination.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	// The pseudo header of RFC 768 and RFC 8200 has the addresses, the protocol and the length.
	pseudo := []byte{0, protocolUDP, udp[4], udp[5]}
	return frame, network, sum(udp) + sum(pseudo) + sum(source) + sum(destination)
}

// sum adds up the 16-bit words of data, which has an even length.
func sum(data []byte) (total uint32) {
	for ; len(data) > 0; data = data[2:] {
		total += uint32(binary.LittleEndian.Uint16(data))
	}
	return total
}
