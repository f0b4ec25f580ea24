package e2e

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Types of ICMP (RFC 792) and ICMPv6 (RFC 4443) messages.
const (
	echoRequestIPv4, echoReplyIPv4 = 8, 0
	echoRequestIPv6, echoReplyIPv6 = 128, 129
)

var externalSequence atomic.Uint32

// externalPing sends an echo request and returns its source address as the server sees it. The reply must come from
// the destination address.
func externalPing(client, server testbed.Netns, to netip.Addr) (seen netip.Addr, err error) {
	network, request, reply := "ip4:icmp", byte(echoRequestIPv4), byte(echoReplyIPv4)
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", echoRequestIPv6, echoReplyIPv6
	}
	open := func(in testbed.Netns) (socket net.PacketConn, err error) {
		err = in.Do(func() (err error) {
			socket, err = net.ListenPacket(network, "")
			return err
		})
		if err == nil {
			err = socket.SetReadDeadline(time.Now().Add(patience))
		}
		return socket, err
	}
	there, err := open(server)
	if err != nil {
		return seen, err
	}
	defer there.Close()
	here, err := open(client)
	if err != nil {
		return seen, err
	}
	defer here.Close()

	// Type, code, checksum, identifier, sequence number, data. NAT may change the identifier, not the data.
	message := make([]byte, 16)
	message[0] = request
	// Each ping has its own identifier, like a program of its own.
	sequence := externalSequence.Add(1)
	binary.BigEndian.PutUint16(message[4:], uint16(os.Getpid())+uint16(sequence))
	binary.BigEndian.PutUint32(message[8:], uint32(os.Getpid()))
	binary.BigEndian.PutUint32(message[12:], sequence)
	if to.Is4() { // for ICMPv6 the kernel computes it
		binary.BigEndian.PutUint16(message[2:], internetChecksum(message))
	}
	if _, err := here.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return seen, err
	}
	if seen, err = externalMessage(there, request, message[8:]); err != nil {
		return seen, err
	}
	for {
		from, err := externalMessage(here, reply, message[8:])
		if err != nil || from == to {
			return seen, err
		}
	}
}

// externalMessage reads until a message of that type with that data arrives, and returns its source.
func externalMessage(socket net.PacketConn, kind byte, data []byte) (from netip.Addr, err error) {
	buffer := make([]byte, 1500)
	for {
		n, sender, err := socket.ReadFrom(buffer)
		if err != nil {
			return from, err
		}
		if n == 8+len(data) && buffer[0] == kind && string(buffer[8:n]) == string(data) {
			from, _ = netip.AddrFromSlice(sender.(*net.IPAddr).IP)
			return from.Unmap(), nil
		}
	}
}

// internetChecksum computes the checksum of RFC 1071.
func internetChecksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
