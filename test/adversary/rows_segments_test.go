package adversary

import (
	"fmt"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// flagsOfNoBeginning are those of segments that begin no connection: alone they are answers, or nothing.
var flagsOfNoBeginning = []uint8{
	0, frame.ACK, frame.PSH | frame.ACK, frame.FIN, frame.FIN | frame.ACK, frame.RST, frame.RST | frame.ACK, frame.URG,
	frame.SYN | frame.ACK, frame.SYN | frame.FIN, frame.SYN | frame.RST, frame.SYN | frame.FIN | frame.ACK, 0x3f, 0xff, 0xc0,
}

// middles are segments of connections that never began. Ports say nothing of who began one: the attacker chooses them.
func middles() (rows []attack) {
	for _, ports := range [][2]uint16{{1500, 80}, {40000, 50000}, {80, 40000}, {40000, 80}, {443, 443}} {
		rows = append(rows, attack{name: fmt.Sprintf("segments without a beginning, %d to %d", ports[0], ports[1]), reasons: byPolicy, frames: func(s *scene) (frames [][]byte) {
			for _, flags := range flagsOfNoBeginning {
				frames = append(frames, s.tcp(ports[0], ports[1], flags))
			}
			return frames
		}})
	}
	return rows
}

// segments are of connections that are there, or not quite TCP.
var segments = []attack{
	{name: "SYN into a connection of others", kind: guarded, prepare: prepareOthers, frames: func(s *scene) [][]byte {
		return [][]byte{
			s.tcp(s.live.client.Port(), s.live.server.Port(), frame.SYN), s.tcp(s.live.client.Port(), s.live.server.Port(), frame.RST|frame.ACK),
			s.tcp(s.live.client.Port(), s.live.server.Port(), frame.PSH|frame.ACK), s.tcp(s.live.server.Port(), s.live.client.Port(), frame.RST|frame.ACK),
		}
	}},
	{name: "SYN back into a connection of the victim", kind: guarded, prepare: prepareOpposite, frames: func(s *scene) [][]byte {
		return [][]byte{s.tcp(s.live.server.Port(), s.live.client.Port(), frame.SYN), s.tcp(s.live.server.Port(), s.live.client.Port()+1, frame.PSH|frame.ACK)}
	}},
	{name: "connection of others with their address", kind: forged, reasons: spoofed, prepare: prepareOthers, frames: func(s *scene) (frames [][]byte) {
		for _, flags := range []uint8{frame.SYN, frame.RST, frame.RST | frame.ACK, frame.PSH | frame.ACK, frame.FIN | frame.ACK} {
			p := frame.TCP(s.live.client, s.live.server, frame.Segment{Flags: flags, Sequence: 1, Ack: 1}, s.token)
			frames = append(frames, s.frame(frame.IP{Source: s.live.client.Addr(), Destination: s.to(), Protocol: tcp, Payload: p}))
		}
		return frames
	}},
	{name: "header of TCP that is too short, or longer than the packet", kind: guarded, frames: func(s *scene) (frames [][]byte) {
		for words := uint8(0); words <= 15; words++ {
			p := frame.TCP(s.fromPort(), s.serverPort(), frame.Segment{Flags: frame.SYN, Words: words}, s.token)
			frames = append(frames, s.frame(s.ip(tcp, p)))
		}
		return frames
	}},
}

// prepareOthers connects the third pod to the victim.
func prepareOthers(s *scene) (err error) {
	s.live, err = connect(s.third.Place, s.victim.Place, s.to())
	return err
}

// prepareOpposite connects the victim to the attacker, which is allowed in each case: only the answers go towards the victim.
func prepareOpposite(s *scene) (err error) {
	s.live, err = connect(s.victim.Place, s.attacker.Place, s.from())
	return err
}
