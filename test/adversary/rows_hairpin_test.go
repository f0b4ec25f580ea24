package adversary

import (
	"net/netip"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// hairpins are frames that seem to be of a connection that policies allow whatever they say, which is there: of the victim with itself by its Service, on
// whose way back it sees another address than its own, and of its node with it.
func hairpins(kind kind, reasons []string) (rows []attack) {
	for _, each := range []struct {
		name    string
		prepare func(*scene) error
	}{
		{"itself by its ClusterIP", func(s *scene) error { return s.hairpin(netip.AddrPortFrom(s.service().cluster[s.family], serverPort)) }},
		{"itself by its node's NodePort", func(s *scene) error { return s.hairpin(s.nodePort(s.victim.node)) }},
		{"its node", func(s *scene) (err error) {
			s.live, err = connectBy(s.victim.node.Place(), s.victim.Place, s.serverPort(), netip.AddrPort{})
			return err
		}},
	} {
		rows = append(rows, attack{name: "in a connection of the victim with " + each.name, kind: kind, reasons: reasons, prepare: each.prepare, frames: func(s *scene) (frames [][]byte) {
			for _, ends := range [][2]netip.AddrPort{
				{s.live.seen, s.serverPort()}, {s.live.server, s.live.client}, // as the victim sees both directions
				{s.live.client, s.live.server}, {s.serverPort(), s.live.seen}, // as it sends them
			} {
				if s.fromStacksService(ends[0].Addr()) {
					continue
				}
				frames = append(frames, s.between(ends[0], ends[1])...)
			}
			return frames
		}})
		rows = append(rows, attack{name: "with the ports of a connection of the victim with " + each.name, kind: guarded, prepare: each.prepare, frames: func(s *scene) (frames [][]byte) {
			for _, ends := range [][2]netip.AddrPort{{s.live.seen, s.serverPort()}, {s.live.server, s.live.client}, {s.live.client, s.live.server}, {s.serverPort(), s.live.seen}} {
				frames = append(frames, s.between(netip.AddrPortFrom(s.from(), ends[0].Port()), ends[1])...)
			}
			return frames
		}})
	}
	return rows
}

// fromStacksService tells whether a source is one from which the link brings what belongs to a connection of the victim: a Service's, of which nobody has
// told Beeline where the stack translates. Who knows the connection's ports can go on with it there, as with one to the world.
func (s *scene) fromStacksService(source netip.Addr) bool {
	return s.attacker.app == outside && s.configuration.translated && source == s.service().cluster[s.family]
}

// hairpin has the victim connect to itself by a Service.
func (s *scene) hairpin(by netip.AddrPort) (err error) {
	s.live, err = connectBy(s.victim.Place, s.victim.Place, s.serverPort(), by)
	return err
}

// between are segments and a datagram with the token.
func (s *scene) between(from, to netip.AddrPort) (frames [][]byte) {
	for _, flags := range []uint8{frame.PSH | frame.ACK, frame.SYN, frame.SYN | frame.ACK} {
		p := frame.TCP(from, to, frame.Segment{Flags: flags, Sequence: 1, Ack: 1}, s.token)
		frames = append(frames, s.frame(frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: tcp, Payload: p}))
	}
	return append(frames, s.udpTo(from, to, s.token))
}
