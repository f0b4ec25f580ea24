package capture

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Header is what captures need of the outer IP header of a frame, and of UDP and TCP the destination port.
type Header struct {
	Source, Destination netip.Addr
	Protocol            byte
	Port                uint16
}

// Lengths of headers in bytes.
const (
	addresses = 12 // of Ethernet
	ipv4      = 20
	ipv6      = 40
)

// HeaderOf reads the headers of a frame, after VLAN tags; it is empty for other frames.
func HeaderOf(frame []byte) (h Header) {
	at := addresses
	kind := func() uint16 {
		if len(frame) < at+2 {
			return 0
		}
		return binary.BigEndian.Uint16(frame[at:])
	}
	for kind() == unix.ETH_P_8021Q || kind() == unix.ETH_P_8021AD {
		at += 4
	}
	var ports int
	switch ip := frame[min(at+2, len(frame)):]; {
	case kind() == unix.ETH_P_IP && len(ip) >= ipv4:
		h = Header{Source: netip.AddrFrom4([4]byte(ip[12:16])), Destination: netip.AddrFrom4([4]byte(ip[16:20])), Protocol: ip[9]}
		ports = at + 2 + int(ip[0]&0xf)*4
	case kind() == unix.ETH_P_IPV6 && len(ip) >= ipv6:
		h = Header{Source: netip.AddrFrom16([16]byte(ip[8:24])), Destination: netip.AddrFrom16([16]byte(ip[24:40])), Protocol: ip[6]}
		ports = at + 2 + ipv6
	default:
		return h
	}
	if len(frame) >= ports+4 {
		h.Port = binary.BigEndian.Uint16(frame[ports+2:])
	}
	return h
}
