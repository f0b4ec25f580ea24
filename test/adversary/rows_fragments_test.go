package adversary

import (
	"bytes"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// id is the identification of an attempt's fragments.
func (s *attempt) id() uint16 { return uint16(s.tokens) }

// long returns a segment with so much data that every fragment from byte 24 on has a token.
func (s *attempt) long(flags uint8) []byte {
	data := bytes.Repeat(s.token, 8)
	return frame.TCP(s.fromPort(), s.serverPort(), frame.Segment{Flags: flags, Sequence: 1, Ack: 1}, append(make([]byte, 4), data...))
}

// pieces returns fragments with these byte ranges of a packet's payload.
func (s *attempt) pieces(protocol uint8, data []byte, parts ...[2]int) (frames [][]byte) {
	for _, part := range parts {
		frames = append(frames, s.frame(s.ip(protocol, nil).Piece(data, part[0], min(part[1], len(data)), s.id())))
	}
	return frames
}

const end = 1 << 16 // of a range: to the end

var fragments = []attack{
	{name: "fragments in order", reasons: []string{"ingress_policy", "egress_policy", "fragment_without_first"}, frames: func(s *attempt) [][]byte {
		return s.pieces(tcp, s.long(frame.SYN), [2]int{0, 48}, [2]int{48, end})
	}},
	{name: "fragments out of order", kind: denied, frames: func(s *attempt) [][]byte {
		return s.pieces(tcp, s.long(frame.SYN), [2]int{48, end}, [2]int{24, 48}, [2]int{0, 24})
	}},
	{name: "last fragment alone", kind: denied, frames: func(s *attempt) [][]byte { return s.pieces(tcp, s.long(frame.SYN), [2]int{48, end}) }},
	{name: "tiny first fragment", kind: denied, frames: func(s *attempt) [][]byte {
		return s.pieces(tcp, s.long(frame.SYN), [2]int{0, 8}, [2]int{8, end})
	}},
	{name: "tiny first fragment of a reply", kind: denied, frames: func(s *attempt) [][]byte {
		return s.pieces(tcp, s.long(frame.SYN|frame.ACK), [2]int{0, 8}, [2]int{8, 24}, [2]int{24, end})
	}},
	{name: "first fragment of 16 bytes", kind: denied, frames: func(s *attempt) [][]byte {
		return s.pieces(tcp, s.long(frame.SYN), [2]int{0, 16}, [2]int{16, end})
	}},
	{name: "a SYN after a first fragment with trailing bytes", kind: denied, frames: hiddenSYN},
	{name: "overlapping fragments", kind: denied, frames: func(s *attempt) [][]byte {
		answer, syn := s.long(frame.ACK), s.long(frame.SYN)
		return slices.Concat(s.pieces(tcp, answer, [2]int{0, 24}), s.pieces(tcp, syn, [2]int{8, end}))
	}},
	{name: "overlapping fragments, first one last", kind: denied, frames: func(s *attempt) [][]byte {
		answer, syn := s.long(frame.ACK), s.long(frame.SYN)
		return slices.Concat(s.pieces(tcp, syn, [2]int{8, end}), s.pieces(tcp, answer, [2]int{0, 24}), s.pieces(tcp, syn, [2]int{0, 24}))
	}},
	{name: "fragments of another protocol after an allowed one", kind: denied, only: 4, frames: func(s *attempt) [][]byte {
		allowed := frame.UDP(s.fromPort(), netip.AddrPortFrom(s.to(), markerPort), make([]byte, 64))
		return slices.Concat(s.pieces(unix.IPPROTO_UDP, allowed, [2]int{0, 24}), s.pieces(tcp, s.long(frame.SYN), [2]int{24, end}))
	}},
	{name: "a repeated first fragment, to another port", kind: denied, frames: func(s *attempt) [][]byte {
		allowed := frame.UDP(s.fromPort(), netip.AddrPortFrom(s.to(), markerPort), make([]byte, 64))
		other := frame.UDP(s.fromPort(), s.serverPort(), bytes.Repeat(s.token, 8))
		return slices.Concat(s.pieces(unix.IPPROTO_UDP, allowed, [2]int{0, 24}), s.pieces(unix.IPPROTO_UDP, other, [2]int{0, 24}))
	}},
	{name: "a fragment beyond the maximum packet length", kind: denied, only: 4, frames: one(func(s *attempt) []byte {
		ip := s.ip(tcp, bytes.Repeat(s.token, 8))
		ip.ID, ip.Offset = s.id(), 65528
		return s.frame(ip)
	})},
	{name: "a fragment that is the whole packet", kind: denied, only: 6, reasons: byPolicy, frames: one(func(s *attempt) []byte {
		return s.pieces(tcp, s.long(frame.SYN), [2]int{0, end})[0]
	})},
	{name: "nested fragment headers", kind: denied, only: 6, frames: func(s *attempt) [][]byte {
		inner := append(frame.FragmentHeader(tcp, 0, false, 7), s.long(frame.SYN)...)
		return s.pieces(unix.IPPROTO_FRAGMENT, inner, [2]int{0, 48}, [2]int{48, end})
	}},
	{name: "a first fragment of extension headers only", kind: denied, only: 6, frames: func(s *attempt) [][]byte {
		inner := append(frame.Extension(tcp, make([]byte, 14)), s.long(frame.SYN)...)
		return s.pieces(frame.DestinationOptions, inner, [2]int{0, 16}, [2]int{16, end})
	}},
}

// hiddenSYN is a first fragment with eight bytes of TCP, followed in the frame by bytes that look like the rest of an
// ACK. The second fragment completes what the receiver reassembles: a SYN.
func hiddenSYN(s *attempt) [][]byte {
	syn, answer := s.long(frame.SYN), s.long(frame.ACK)
	first := s.ip(tcp, nil).Piece(syn, 0, 8, s.id())
	first.Trailer = answer[8:40]
	return append([][]byte{s.frame(first)}, s.pieces(tcp, syn, [2]int{8, end})...)
}
