package adversary

import (
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// byPolicy are the reasons of what policies forbid.
var byPolicy = []string{"ingress_policy", "egress_policy"}

// plain attacks begin a connection that policies forbid, as anybody would: what all other rows are measured by.
var plain = []attack{
	{name: "SYN", reasons: byPolicy, frames: one(func(s *scene) []byte { return s.tcp(s.port, serverPort, frame.SYN) })},
	{name: "datagram", reasons: byPolicy, frames: one((*scene).udp)},
	{name: "empty datagram with the token behind it", kind: guarded, reasons: byPolicy, frames: one(func(s *scene) []byte {
		ip := s.ip(unix.IPPROTO_UDP, s.datagram(nil))
		ip.Trailer = s.token
		return s.frame(ip)
	})},
	{name: "echo request", reasons: byPolicy, frames: one(func(s *scene) []byte {
		return s.icmp(pick[uint8](s, 8, 128), 0, uint32(s.port), s.token)
	})},
	{name: "echo reply that nobody asked for", reasons: byPolicy, frames: one(func(s *scene) []byte {
		return s.icmp(pick[uint8](s, 0, 129), 0, uint32(s.port), s.token)
	})},
	{name: "timestamp request", only: 4, reasons: byPolicy, frames: one(func(s *scene) []byte { return s.icmp(13, 0, uint32(s.port), s.token) })},
	{name: "SCTP INIT", reasons: byPolicy, frames: one(func(s *scene) []byte {
		return s.frame(s.ip(unix.IPPROTO_SCTP, frame.SCTP(s.port, serverPort, 1, append(make([]byte, 16), s.token...))))
	})},
	{name: "SCTP DATA", reasons: byPolicy, frames: one(func(s *scene) []byte {
		return s.frame(s.ip(unix.IPPROTO_SCTP, frame.SCTP(s.port, serverPort, 0, append(make([]byte, 12), s.token...))))
	})},
	{name: "GRE", reasons: byPolicy, frames: one(func(s *scene) []byte {
		return s.frame(s.ip(unix.IPPROTO_GRE, append([]byte{0, 0, 8, 0}, s.token...)))
	})},
	{name: "IPIP", reasons: byPolicy, only: 4, frames: one(func(s *scene) []byte {
		return s.frame(s.ip(unix.IPPROTO_IPIP, s.ip(unix.IPPROTO_UDP, s.datagram(s.token)).Packet()))
	})},
	{name: "protocol 255", reasons: byPolicy, frames: one(func(s *scene) []byte { return s.frame(s.ip(255, s.token)) })},
	{name: "IGMP to the victim", only: 4, reasons: byPolicy, frames: one(func(s *scene) []byte {
		return s.frame(s.ip(unix.IPPROTO_IGMP, append([]byte{0x16, 0, 0, 0}, s.token...)))
	})},
}

// one makes the frames of a row from a single one.
func one(build func(*scene) []byte) func(*scene) [][]byte {
	return func(s *scene) [][]byte { return [][]byte{build(s)} }
}
