package adversary

import (
	"bytes"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// chain returns a frame with extension headers of these kinds before a SYN.
func (s *attempt) chain(kinds ...uint8) []byte {
	payload, next := s.segment(s.port, serverPort, frame.SYN), uint8(tcp)
	for _, kind := range slices.Backward(kinds) {
		payload, next = append(s.extension(kind, next), payload...), kind
	}
	return s.frame(s.ip(next, payload))
}

func (s *attempt) extension(kind, next uint8) []byte {
	switch kind {
	case frame.Fragment:
		return frame.FragmentHeader(next, 0, false, s.tokens)
	case unix.IPPROTO_AH: // RFC 4302, 2: length in 4-byte words, minus 2
		return []byte{next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}
	default:
		return frame.Extension(next, make([]byte, 6))
	}
}

func chained(name string, kinds ...uint8) attack {
	return attack{name: name, kind: denied, only: 6, frames: one(func(s *attempt) []byte { return s.chain(kinds...) })}
}

// Rare extension headers (RFC 6275, 7401, 5533; 253 is for experiments, RFC 4727).
const (
	mobility, hostIdentity, shim6, experiment = 135, 139, 140, 253
)

var extensions = []attack{
	chained("hop-by-hop options", frame.HopByHop),
	chained("destination options", frame.DestinationOptions),
	chained("routing header without addresses", frame.Routing),
	chained("authentication header", unix.IPPROTO_AH),
	chained("fragment header between options", frame.HopByHop, frame.DestinationOptions, frame.Fragment, frame.DestinationOptions),
	chained("hop-by-hop options in the middle", frame.DestinationOptions, frame.HopByHop),
	chained("two hop-by-hop options", frame.HopByHop, frame.HopByHop),
	chained("two fragment headers", frame.Fragment, frame.Fragment),
	chained("mobility header", mobility),
	chained("host identity", hostIdentity),
	chained("shim6", shim6),
	chained("experimental header", experiment),
	chained("no next header, with a payload", frame.NoNextHeader),
	chained("eight headers", slices.Repeat([]uint8{frame.DestinationOptions}, 8)...),
	chained("forty headers", slices.Repeat([]uint8{frame.DestinationOptions}, 40)...),
	{name: "routing headers of all types, to the victim", kind: denied, only: 6, frames: func(s *attempt) (frames [][]byte) {
		for _, kind := range []uint8{0, 1, 2, 3, 4, 253} {
			for left := range uint8(2) {
				header := frame.RoutingHeader(tcp, kind, left, s.to())
				frames = append(frames, s.frame(s.ip(frame.Routing, append(header, s.segment(s.port, serverPort, frame.SYN)...))))
			}
		}
		return frames
	}},
	{name: "routing headers of all types, via nodes and pods", kind: denied, only: 6, frames: func(s *attempt) (frames [][]byte) {
		for _, by := range []netip.Addr{s.nodes[0].Addresses[1].Addr(), s.nodes[1].Addresses[1].Addr(), s.third.Addresses[1], s.pod(unselected, 2).Addresses[1]} {
			if by == s.to() {
				continue
			}
			for _, kind := range []uint8{0, 2, 3, 4} {
				ip := s.ip(frame.Routing, append(frame.RoutingHeader(tcp, kind, 1, s.to()), s.segment(s.port, serverPort, frame.SYN)...))
				ip.Destination = by
				if s.attacker.app != restricted && by != s.nodes[0].Addresses[1].Addr() && by != s.nodes[1].Addresses[1].Addr() {
					continue // policies allow the attacker to send to those
				}
				frames = append(frames, s.frame(ip))
			}
		}
		return frames
	}},
	{name: "jumbo payload", kind: denied, only: 6, frames: one(func(s *attempt) []byte {
		segment := s.segment(s.port, serverPort, frame.SYN)
		header := frame.Extension(tcp, []byte{0xc2, 4, 0, 0, 0, byte(8 + len(segment))})
		f := s.frame(s.ip(frame.HopByHop, append(header, segment...)))
		f[frame.HeaderLength+4], f[frame.HeaderLength+5] = 0, 0 // RFC 2675, 3
		return f
	})},
	{name: "router alert", kind: denied, only: 6, frames: one(func(s *attempt) []byte {
		header := frame.Extension(tcp, []byte{5, 2, 0, 0, 1, 0})
		return s.frame(s.ip(frame.HopByHop, append(header, s.segment(s.port, serverPort, frame.SYN)...)))
	})},
}

// option returns a row with IPv4 options before a SYN to the victim.
func option(name string, options ...byte) attack {
	return attack{name: name, kind: denied, only: 4, frames: one(func(s *attempt) []byte {
		ip := s.ip(tcp, s.segment(s.port, serverPort, frame.SYN))
		ip.Options = options
		return s.frame(ip)
	})}
}

var options = []attack{
	option("IPv4 no-operation options", 1, 1, 1, 1),
	option("40 bytes of IPv4 options", bytes.Repeat([]byte{1}, 40)...),
	option("record route", 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0),
	option("timestamp", 68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0),
	option("IPv4 router alert", 148, 4, 0, 0),
	option("an option that is longer than the header", 7, 200, 4, 0),
	option("an option of length zero", 7, 0, 4, 0),
	{name: "source routes via nodes and pods", kind: denied, only: 4, frames: func(s *attempt) (frames [][]byte) {
		for _, by := range []netip.Addr{s.nodes[0].Addresses[0].Addr(), s.nodes[1].Addresses[0].Addr(), netip.MustParseAddr("169.254.1.1"), services[s.victim.Name].cluster[0]} {
			for _, kind := range []byte{131, 137} {
				ip := s.ip(tcp, s.segment(s.port, serverPort, frame.SYN))
				ip.Destination = by
				ip.Options = append(append([]byte{kind, 7, 4}, s.to().AsSlice()...), 0)
				frames = append(frames, s.frame(ip))
			}
		}
		return frames
	}},
	{name: "source routes that end at the victim", kind: denied, only: 4, frames: func(s *attempt) (frames [][]byte) {
		for _, kind := range []byte{131, 137} {
			ip := s.ip(tcp, s.segment(s.port, serverPort, frame.SYN))
			ip.Options = append(append([]byte{kind, 7, 8}, s.third.Addresses[0].AsSlice()...), 0)
			frames = append(frames, s.frame(ip))
		}
		return frames
	}},
}
