package adversary

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// attempt is one attack on one victim over one address family.
type attempt struct {
	*lab
	attacker, victim *pod
	// third is a pod on the attacker's node that the victim admits and that takes no part in the attack.
	third *pod
	// family is the index of addresses: 0 IPv4, 1 IPv6.
	family int
	// token is in every frame that must not arrive.
	token []byte
	// port is an ephemeral port unique to the attempt.
	port uint16
	// live is the connection that prepare opened.
	live liveConn
}

// attempt returns one with its own token and port.
func (l *lab) attempt(attacker, victim *pod, family int) *attempt {
	s := &attempt{lab: l, attacker: attacker, victim: victim, third: l.pod(admitted, 1), family: family}
	s.renew()
	return s
}

// magic is the start of every token; no other frame contains it.
const magic = 0xadbe7a11

func (s *attempt) renew() {
	s.tokens++
	s.token = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, magic), s.tokens)
	const first, count = 10000, 20000
	s.port = uint16(first + s.tokens%count)
}

func (s *attempt) from() netip.Addr { return s.attacker.Addresses[s.family] }
func (s *attempt) to() netip.Addr   { return s.victim.Addresses[s.family] }
func (s *attempt) is4() bool        { return s.family == 0 }

// frame returns a packet in an Ethernet frame from the attacker's device to the node.
func (s *attempt) frame(ip frame.IP) []byte {
	return frame.Ethernet(s.nextHop(ip.Destination), s.attacker.mac, frame.EtherType(ip.Source), ip.Packet())
}

// nextHop returns the MAC to which the attacker sends packets for this destination: on the nodes' link that of the pod, or
// of the uplink that answers for it, else the node's.
func (s *attempt) nextHop(to netip.Addr) net.HardwareAddr {
	if s.configuration.byNode || s.attacker.kind != onLink && s.attacker.app != external {
		return s.attacker.host
	}
	for _, p := range s.pods {
		switch {
		case p.Addresses[s.family] != to:
		case p.kind == onLink:
			return p.mac
		case p.kind == routed && p.node != s.attacker.node:
			return s.externalSender(p.node.Index).host
		}
	}
	return s.attacker.host
}

// ip returns a packet from the attacker to the victim.
func (s *attempt) ip(protocol uint8, payload []byte) frame.IP {
	return frame.IP{Source: s.from(), Destination: s.to(), Protocol: protocol, Payload: payload}
}

// segment returns a TCP segment between these ports with the token as data.
func (s *attempt) segment(from, to uint16, flags uint8) []byte {
	return frame.TCP(netip.AddrPortFrom(s.from(), from), netip.AddrPortFrom(s.to(), to), frame.Segment{Flags: flags, Sequence: 1, Ack: 1}, s.token)
}

// tcp returns a frame with such a segment.
func (s *attempt) tcp(from, to uint16, flags uint8) []byte {
	return s.frame(s.ip(unix.IPPROTO_TCP, s.segment(from, to, flags)))
}

// udpTo returns a frame with a datagram between these addresses.
func (s *attempt) udpTo(from, to netip.AddrPort, data []byte) []byte {
	return s.frame(frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: unix.IPPROTO_UDP, Payload: frame.UDP(from, to, data)})
}

// datagram returns UDP from the attacker to the victim with this data.
func (s *attempt) datagram(data []byte) []byte {
	return frame.UDP(netip.AddrPortFrom(s.from(), s.port), netip.AddrPortFrom(s.to(), serverPort), data)
}

// udp returns a frame with the token in a datagram, from the attacker to the victim.
func (s *attempt) udp() []byte { return s.frame(s.ip(unix.IPPROTO_UDP, s.datagram(s.token))) }

// icmp returns a frame with an ICMP message from the attacker to the victim.
func (s *attempt) icmp(kind, code uint8, rest uint32, data []byte) []byte {
	return s.frame(s.ip(s.icmpProtocol(), frame.ICMP(s.from(), s.to(), kind, code, rest, data)))
}

func (s *attempt) icmpProtocol() uint8 {
	if s.is4() {
		return unix.IPPROTO_ICMP
	}
	return unix.IPPROTO_ICMPV6
}

// pick returns the value for the attempt's family.
func pick[T any](s *attempt, ipv4, ipv6 T) T {
	if s.is4() {
		return ipv4
	}
	return ipv6
}

// addr returns the address of the attempt's family.
func (s *attempt) addr(ipv4, ipv6 string) netip.Addr { return netip.MustParseAddr(pick(s, ipv4, ipv6)) }

func (s *attempt) fromPort() netip.AddrPort   { return netip.AddrPortFrom(s.from(), s.port) }
func (s *attempt) serverPort() netip.AddrPort { return netip.AddrPortFrom(s.to(), serverPort) }
