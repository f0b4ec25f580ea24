package adversary

import (
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// byPolicy are the reasons of packets that policies deny.
var byPolicy = []string{"ingress_policy", "egress_policy"}

// plain attacks start an ordinary connection that policies deny.
var plain = []attack{
	{name: "SYN", reasons: byPolicy, frames: one(func(s *attempt) []byte { return s.tcp(s.port, serverPort, frame.SYN) })},
	{name: "datagram", reasons: byPolicy, frames: one((*attempt).udp)},
	{name: "empty datagram followed by the token", kind: denied, reasons: byPolicy, frames: one(func(s *attempt) []byte {
		ip := s.ip(unix.IPPROTO_UDP, s.datagram(nil))
		ip.Trailer = s.token
		return s.frame(ip)
	})},
	{name: "echo request", reasons: byPolicy, frames: one(func(s *attempt) []byte {
		return s.icmp(pick[uint8](s, 8, 128), 0, uint32(s.port), s.token)
	})},
	{name: "unsolicited echo reply", reasons: byPolicy, frames: one(func(s *attempt) []byte {
		return s.icmp(pick[uint8](s, 0, 129), 0, uint32(s.port), s.token)
	})},
	{name: "timestamp request", only: 4, reasons: byPolicy, frames: one(func(s *attempt) []byte { return s.icmp(13, 0, uint32(s.port), s.token) })},
	{name: "SCTP INIT", reasons: byPolicy, frames: one(func(s *attempt) []byte {
		return s.frame(s.ip(unix.IPPROTO_SCTP, frame.SCTP(s.port, serverPort, 1, append(make([]byte, 16), s.token...))))
	})},
	{name: "SCTP DATA", reasons: byPolicy, frames: one(func(s *attempt) []byte {
		return s.frame(s.ip(unix.IPPROTO_SCTP, frame.SCTP(s.port, serverPort, 0, append(make([]byte, 12), s.token...))))
	})},
	{name: "GRE", reasons: byPolicy, frames: one(func(s *attempt) []byte {
		return s.frame(s.ip(unix.IPPROTO_GRE, append([]byte{0, 0, 8, 0}, s.token...)))
	})},
	{name: "IPIP", reasons: byPolicy, only: 4, frames: one(func(s *attempt) []byte {
		return s.frame(s.ip(unix.IPPROTO_IPIP, s.ip(unix.IPPROTO_UDP, s.datagram(s.token)).Packet()))
	})},
	{name: "protocol 255", reasons: byPolicy, frames: one(func(s *attempt) []byte { return s.frame(s.ip(255, s.token)) })},
	{name: "IGMP to the victim", only: 4, reasons: byPolicy, frames: one(func(s *attempt) []byte {
		return s.frame(s.ip(unix.IPPROTO_IGMP, append([]byte{0x16, 0, 0, 0}, s.token...)))
	})},
}

// one makes the frames of a row from a single frame.
func one(build func(*attempt) []byte) func(*attempt) [][]byte {
	return func(s *attempt) [][]byte { return [][]byte{build(s)} }
}
