package adversary

import (
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// icmpError is a type of error that quotes a packet.
type icmpError struct {
	name       string
	kind, code uint8
	rest       uint32
}

// icmpErrors are those of ICMP (RFC 792, 1191) and ICMPv6 (RFC 4443), with the smallest MTUs.
var icmpErrors = [2][]icmpError{
	{
		{"port unreachable", 3, 3, 0}, {"host unreachable", 3, 1, 0}, {"fragmentation needed", 3, 4, 68}, {"source quench", 4, 0, 0},
		{"redirect", 5, 1, 0x0a4d0163}, {"time exceeded", 11, 0, 0}, {"parameter problem", 12, 0, 0},
	},
	{
		{"port unreachable", 1, 4, 0}, {"prohibited", 1, 1, 0}, {"packet too big", 2, 0, 1280}, {"time exceeded", 3, 0, 0}, {"parameter problem", 4, 0, 0},
		{"unknown error", 100, 0, 0},
	},
}

// errorsAbout quotes a TCP packet in errors of all types, from the attacker to the sender of that packet.
func (s *attempt) errorsAbout(from, to netip.AddrPort) (frames [][]byte) {
	quoted := frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: tcp, Payload: frame.TCP(from, to, frame.Segment{Flags: frame.ACK, Sequence: 1, Ack: 1}, s.token)}
	for _, e := range icmpErrors[s.family] {
		ip := s.ip(s.icmpProtocol(), frame.ICMP(s.from(), from.Addr(), e.kind, e.code, e.rest, quoted.Packet()))
		ip.Destination = from.Addr()
		frames = append(frames, s.frame(ip))
	}
	return frames
}

// icmpAttacks are ICMP errors from a pod that is no party to the quoted connection.
var icmpAttacks = []attack{
	{name: "ICMP errors about packets that were never sent", kind: denied, frames: func(s *attempt) [][]byte {
		return slices.Concat(s.errorsAbout(s.serverPort(), s.fromPort()), s.errorsAbout(s.serverPort(), netip.AddrPortFrom(s.third.Addresses[s.family], s.port)))
	}},
	{name: "ICMP errors about a connection with another pod", kind: forged, reasons: []string{"forged_error"}, prepare: connectThird, frames: func(s *attempt) [][]byte {
		return s.errorsAbout(s.live.server, s.live.client)
	}},
	{name: "ICMP errors in fragments", kind: denied, prepare: connectThird, frames: func(s *attempt) (frames [][]byte) {
		quoted := frame.IP{Source: s.to(), Destination: s.live.client.Addr(), Protocol: tcp}
		quoted.Payload = frame.TCP(s.live.server, s.live.client, frame.Segment{Flags: frame.ACK}, append(make([]byte, 20), s.token...))
		for _, e := range icmpErrors[s.family] {
			s.tokens++ // another fragment identification
			message := frame.ICMP(s.from(), s.to(), e.kind, e.code, e.rest, quoted.Packet())
			frames = append(frames, s.pieces(s.icmpProtocol(), message, [2]int{0, 40}, [2]int{40, end})...)
		}
		return frames
	}},
}
