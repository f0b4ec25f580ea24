package adversary

import (
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// icmpError is a kind of error that quotes a packet.
type icmpError struct {
	name       string
	kind, code uint8
	rest       uint32
}

// icmpErrors are those of ICMP (RFC 792, 1191) and ICMPv6 (RFC 4443): MTUs are the smallest that there are.
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

// about quotes a packet of TCP from one end to the other in errors of all kinds, from the attacker to whoever sent that.
func (s *scene) about(from, to netip.AddrPort) (frames [][]byte) {
	quoted := frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: tcp, Payload: frame.TCP(from, to, frame.Segment{Flags: frame.ACK, Sequence: 1, Ack: 1}, s.token)}
	for _, e := range icmpErrors[s.family] {
		ip := s.ip(s.icmpProtocol(), frame.ICMP(s.from(), from.Addr(), e.kind, e.code, e.rest, quoted.Packet()))
		ip.Destination = from.Addr()
		frames = append(frames, s.frame(ip))
	}
	return frames
}

// errors of ICMP, from somebody who has nothing to do with the connection that they quote.
var icmpAttacks = []attack{
	{name: "ICMP errors about what nobody has sent", kind: guarded, frames: func(s *scene) [][]byte {
		return slices.Concat(s.about(s.serverPort(), s.fromPort()), s.about(s.serverPort(), netip.AddrPortFrom(s.third.Addresses[s.family], s.port)))
	}},
	{name: "ICMP errors about a connection with another pod", kind: forged, reasons: []string{"forged_error"}, prepare: prepareOthers, frames: func(s *scene) [][]byte {
		return s.about(s.live.server, s.live.client)
	}},
	{name: "ICMP errors in fragments", kind: guarded, prepare: prepareOthers, frames: func(s *scene) (frames [][]byte) {
		quoted := frame.IP{Source: s.to(), Destination: s.live.client.Addr(), Protocol: tcp}
		quoted.Payload = frame.TCP(s.live.server, s.live.client, frame.Segment{Flags: frame.ACK}, append(make([]byte, 20), s.token...))
		for _, e := range icmpErrors[s.family] {
			s.tokens++ // another identification
			message := frame.ICMP(s.from(), s.to(), e.kind, e.code, e.rest, quoted.Packet())
			frames = append(frames, s.pieces(s.icmpProtocol(), message, [2]int{0, 40}, [2]int{40, end})...)
		}
		return frames
	}},
}
