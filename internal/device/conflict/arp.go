package conflict

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// An ARP packet for Ethernet and IPv4 (RFC 826), behind the Ethernet header: offsets from the start of the frame.
const (
	ethernetHeader  = 14
	arpOperation    = ethernetHeader + 6
	arpSenderMAC    = ethernetHeader + 8
	arpSender       = ethernetHeader + 14
	arpTarget       = ethernetHeader + 24
	arpLength       = ethernetHeader + 28
	arpRequest      = 1
	arpReply        = 2
	hardwareEther   = 1
	macLength       = 6
	ipv4Length      = 4
	broadcast       = "\xff\xff\xff\xff\xff\xff"
	etherTypeOffset = 12
)

// arpFrame is a broadcast ARP request: with sender 0.0.0.0 a probe, with sender and target alike an announcement (RFC 5227, 1.1).
func arpFrame(own net.HardwareAddr, sender, target netip.Addr) []byte {
	return arpPacket(ethernet([]byte(broadcast), own, unix.ETH_P_ARP), arpRequest, own, sender, make([]byte, macLength), target)
}

// arpDefence is the reply to a probe of the host with a MAC.
func arpDefence(own, host net.HardwareAddr, a netip.Addr) []byte {
	return arpPacket(ethernet(host, own, unix.ETH_P_ARP), arpReply, own, a, host, netip.IPv4Unspecified())
}

func arpPacket(frame []byte, operation byte, senderMAC net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr, target netip.Addr) []byte {
	frame = binary.BigEndian.AppendUint16(frame, hardwareEther)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IP)
	frame = append(frame, macLength, ipv4Length, 0, operation)
	frame = append(append(frame, senderMAC...), sender.AsSlice()...)
	return append(append(frame, targetMAC...), target.AsSlice()...)
}

// arpClaimant: a host claims an address as the sender of any ARP packet, and with a probe of its own (RFC 5227, 2.1.1).
func arpClaimant(frame []byte, a netip.Addr) net.HardwareAddr {
	if len(frame) < arpLength || binary.BigEndian.Uint16(frame[etherTypeOffset:]) != unix.ETH_P_ARP {
		return nil
	}
	sender, target := netip.AddrFrom4([4]byte(frame[arpSender:])), netip.AddrFrom4([4]byte(frame[arpTarget:]))
	if sender == a || sender.IsUnspecified() && target == a {
		return net.HardwareAddr(frame[arpSenderMAC : arpSenderMAC+macLength])
	}
	return nil
}

func ethernet(to, from []byte, etherType uint16) []byte {
	frame := append(append(make([]byte, 0, 128), to...), from...)
	return binary.BigEndian.AppendUint16(frame, etherType)
}
