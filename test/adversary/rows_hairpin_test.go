package adversary

import (
	"net/netip"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// hairpins are frames that imitate a connection that is always allowed: of the victim with itself through its
// Service, whose replies have another address than its own, and of its node with it.
func hairpins(kind kind, reasons []string) (rows []attack) {
	for _, each := range []struct {
		name    string
		prepare func(*attempt) error
	}{
		{"itself via its ClusterIP", func(s *attempt) error {
			return s.hairpin(netip.AddrPortFrom(s.service().cluster[s.family], serverPort))
		}},
		{"itself via its node's NodePort", func(s *attempt) error { return s.hairpin(s.nodePort(s.victim.node)) }},
		{"its node", func(s *attempt) (err error) {
			s.live, err = connectVia(s.victim.node.Netns, s.victim.Netns, s.serverPort(), netip.AddrPort{})
			return err
		}},
	} {
		rows = append(rows, attack{name: "in a connection of the victim with " + each.name, kind: kind, reasons: reasons, prepare: each.prepare, frames: func(s *attempt) (frames [][]byte) {
			for _, ends := range [][2]netip.AddrPort{
				{s.live.seenClient, s.serverPort()}, {s.live.server, s.live.client}, // as the victim receives both directions
				{s.live.client, s.live.server}, {s.serverPort(), s.live.seenClient}, // as the victim sends them
			} {
				if s.fromTranslatedService(ends[0].Addr()) {
					continue
				}
				frames = append(frames, s.between(ends[0], ends[1])...)
			}
			return frames
		}})
		rows = append(rows, attack{name: "with the ports of a connection of the victim with " + each.name, kind: denied, prepare: each.prepare, frames: func(s *attempt) (frames [][]byte) {
			for _, ends := range [][2]netip.AddrPort{{s.live.seenClient, s.serverPort()}, {s.live.server, s.live.client}, {s.live.client, s.live.server}, {s.serverPort(), s.live.seenClient}} {
				frames = append(frames, s.between(netip.AddrPortFrom(s.from(), ends[0].Port()), ends[1])...)
			}
			return frames
		}})
	}
	return rows
}

// fromTranslatedService reports whether a source is a Service that only the kernel stack knows: the datapath treats it as an
// external host, and a sender on the link that knows the ports of a connection can inject into it.
func (s *attempt) fromTranslatedService(source netip.Addr) bool {
	return s.attacker.app == external && s.configuration.kubeProxy && source == s.service().cluster[s.family]
}

// hairpin connects the victim to itself through a Service.
func (s *attempt) hairpin(by netip.AddrPort) (err error) {
	s.live, err = connectVia(s.victim.Netns, s.victim.Netns, s.serverPort(), by)
	return err
}

// between returns segments and a datagram with the token.
func (s *attempt) between(from, to netip.AddrPort) (frames [][]byte) {
	for _, flags := range []uint8{frame.PSH | frame.ACK, frame.SYN, frame.SYN | frame.ACK} {
		p := frame.TCP(from, to, frame.Segment{Flags: flags, Sequence: 1, Ack: 1}, s.token)
		frames = append(frames, s.frame(frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: tcp, Payload: p}))
	}
	return append(frames, s.udpTo(from, to, s.token))
}
