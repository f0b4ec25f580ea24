package adversary

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// scene is one attack at one victim over one address family: what rows build their frames from.
type scene struct {
	*lab
	attacker, victim *pod
	// third is a pod beside the attacker that has no part in it, and that the victim admits.
	third *pod
	// family is the index of addresses: 0 IPv4, 1 IPv6.
	family int
	// token is in every frame of the attack that must not arrive.
	token []byte
	// port is an ephemeral port that no other scene has.
	port uint16
	// live is a connection that prepare has made.
	live liveConn
}

// scene begins one, with a token and a port of its own.
func (l *lab) scene(attacker, victim *pod, family int) *scene {
	s := &scene{lab: l, attacker: attacker, victim: victim, third: l.pod(friend, 1), family: family}
	s.renew()
	return s
}

// magic begins every token: no frame has it by chance.
const magic = 0xadbe7a11

func (s *scene) renew() {
	s.tokens++
	s.token = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, magic), s.tokens)
	const first, count = 10000, 20000
	s.port = uint16(first + s.tokens%count)
}

func (s *scene) from() netip.Addr { return s.attacker.Addresses[s.family] }
func (s *scene) to() netip.Addr   { return s.victim.Addresses[s.family] }
func (s *scene) is4() bool        { return s.family == 0 }

// frame is a packet from the attacker's device to the node.
func (s *scene) frame(ip frame.IP) []byte {
	return frame.Ethernet(s.attacker.host, s.attacker.mac, frame.EtherType(ip.Source), ip.Packet())
}

// ip is a packet of a protocol from the attacker to the victim.
func (s *scene) ip(protocol uint8, payload []byte) frame.IP {
	return frame.IP{Source: s.from(), Destination: s.to(), Protocol: protocol, Payload: payload}
}

// segment is TCP between these ports with the token as data.
func (s *scene) segment(from, to uint16, flags uint8) []byte {
	return frame.TCP(netip.AddrPortFrom(s.from(), from), netip.AddrPortFrom(s.to(), to), frame.Segment{Flags: flags, Sequence: 1, Ack: 1}, s.token)
}

// tcp is a frame with such a segment.
func (s *scene) tcp(from, to uint16, flags uint8) []byte {
	return s.frame(s.ip(unix.IPPROTO_TCP, s.segment(from, to, flags)))
}

// udpTo is a frame with a datagram from and to these addresses.
func (s *scene) udpTo(from, to netip.AddrPort, data []byte) []byte {
	return s.frame(frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: unix.IPPROTO_UDP, Payload: frame.UDP(from, to, data)})
}

// datagram is UDP from the attacker to the victim with this data.
func (s *scene) datagram(data []byte) []byte {
	return frame.UDP(netip.AddrPortFrom(s.from(), s.port), netip.AddrPortFrom(s.to(), serverPort), data)
}

// udp is a frame with the token in a datagram, from the attacker to the victim.
func (s *scene) udp() []byte { return s.frame(s.ip(unix.IPPROTO_UDP, s.datagram(s.token))) }

// icmp is a frame with a message from the attacker to the victim.
func (s *scene) icmp(kind, code uint8, rest uint32, data []byte) []byte {
	return s.frame(s.ip(s.icmpProtocol(), frame.ICMP(s.from(), s.to(), kind, code, rest, data)))
}

func (s *scene) icmpProtocol() uint8 {
	if s.is4() {
		return unix.IPPROTO_ICMP
	}
	return unix.IPPROTO_ICMPV6
}

// pick gives the one for the scene's family.
func pick[T any](s *scene, ipv4, ipv6 T) T {
	if s.is4() {
		return ipv4
	}
	return ipv6
}

// addr gives the address of the scene's family.
func (s *scene) addr(ipv4, ipv6 string) netip.Addr { return netip.MustParseAddr(pick(s, ipv4, ipv6)) }

func (s *scene) fromPort() netip.AddrPort   { return netip.AddrPortFrom(s.from(), s.port) }
func (s *scene) serverPort() netip.AddrPort { return netip.AddrPortFrom(s.to(), serverPort) }
