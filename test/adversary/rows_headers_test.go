package adversary

import (
	"bytes"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// chain puts headers before a SYN: what each is called by the one before, and its bytes given what follows.
func (s *scene) chain(kinds ...uint8) []byte {
	payload, next := s.segment(s.port, serverPort, frame.SYN), uint8(tcp)
	for _, kind := range slices.Backward(kinds) {
		payload, next = append(s.extension(kind, next), payload...), kind
	}
	return s.frame(s.ip(next, payload))
}

func (s *scene) extension(kind, next uint8) []byte {
	switch kind {
	case frame.Fragment:
		return frame.FragmentHeader(next, 0, false, s.tokens)
	case unix.IPPROTO_AH: // RFC 4302, 2: the length is in words of four bytes, less two
		return []byte{next, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}
	default:
		return frame.Extension(next, make([]byte, 6))
	}
}

func chained(name string, kinds ...uint8) attack {
	return attack{name: name, kind: guarded, only: 6, frames: one(func(s *scene) []byte { return s.chain(kinds...) })}
}

// Numbers of extension headers that hosts hardly know (RFC 6275, 7401, 5533; 253 is for experiments, RFC 4727).
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
	chained("header of an experiment", experiment),
	chained("nothing behind, but there is", frame.NoNextHeader),
	chained("eight headers", slices.Repeat([]uint8{frame.DestinationOptions}, 8)...),
	chained("forty headers", slices.Repeat([]uint8{frame.DestinationOptions}, 40)...),
	{name: "routing headers of all types, to the victim", kind: guarded, only: 6, frames: func(s *scene) (frames [][]byte) {
		for _, kind := range []uint8{0, 1, 2, 3, 4, 253} {
			for left := range uint8(2) {
				header := frame.RoutingHeader(tcp, kind, left, s.to())
				frames = append(frames, s.frame(s.ip(frame.Routing, append(header, s.segment(s.port, serverPort, frame.SYN)...))))
			}
		}
		return frames
	}},
	{name: "routing headers of all types, by way of nodes and pods", kind: guarded, only: 6, frames: func(s *scene) (frames [][]byte) {
		for _, by := range []netip.Addr{s.nodes[0].Addresses[1].Addr(), s.nodes[1].Addresses[1].Addr(), s.third.Addresses[1], s.pod(open, 2).Addresses[1]} {
			if by == s.to() {
				continue
			}
			for _, kind := range []uint8{0, 2, 3, 4} {
				ip := s.ip(frame.Routing, append(frame.RoutingHeader(tcp, kind, 1, s.to()), s.segment(s.port, serverPort, frame.SYN)...))
				ip.Destination = by
				if s.attacker.app != caged && by != s.nodes[0].Addresses[1].Addr() && by != s.nodes[1].Addresses[1].Addr() {
					continue // it may send to those whatever it likes
				}
				frames = append(frames, s.frame(ip))
			}
		}
		return frames
	}},
	{name: "jumbo payload", kind: guarded, only: 6, frames: one(func(s *scene) []byte {
		segment := s.segment(s.port, serverPort, frame.SYN)
		header := frame.Extension(tcp, []byte{0xc2, 4, 0, 0, 0, byte(8 + len(segment))})
		f := s.frame(s.ip(frame.HopByHop, append(header, segment...)))
		f[frame.HeaderLength+4], f[frame.HeaderLength+5] = 0, 0 // RFC 2675, 3
		return f
	})},
	{name: "router alert", kind: guarded, only: 6, frames: one(func(s *scene) []byte {
		header := frame.Extension(tcp, []byte{5, 2, 0, 0, 1, 0})
		return s.frame(s.ip(frame.HopByHop, append(header, s.segment(s.port, serverPort, frame.SYN)...)))
	})},
}

// option is a row with IPv4 options before a SYN to the victim.
func option(name string, options ...byte) attack {
	return attack{name: name, kind: guarded, only: 4, frames: one(func(s *scene) []byte {
		ip := s.ip(tcp, s.segment(s.port, serverPort, frame.SYN))
		ip.Options = options
		return s.frame(ip)
	})}
}

var options = []attack{
	option("IPv4 options that do nothing", 1, 1, 1, 1),
	option("40 bytes of IPv4 options", bytes.Repeat([]byte{1}, 40)...),
	option("record route", 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0),
	option("timestamp", 68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0),
	option("IPv4 router alert", 148, 4, 0, 0),
	option("an option that is longer than the header", 7, 200, 4, 0),
	option("an option of no length", 7, 0, 4, 0),
	{name: "source routes by way of nodes and pods", kind: guarded, only: 4, frames: func(s *scene) (frames [][]byte) {
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
	{name: "source routes that end at the victim", kind: guarded, only: 4, frames: func(s *scene) (frames [][]byte) {
		for _, kind := range []byte{131, 137} {
			ip := s.ip(tcp, s.segment(s.port, serverPort, frame.SYN))
			ip.Options = append(append([]byte{kind, 7, 8}, s.third.Addresses[0].AsSlice()...), 0)
			frames = append(frames, s.frame(ip))
		}
		return frames
	}},
}
