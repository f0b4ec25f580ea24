package adversary

import (
	"fmt"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// midstreamFlags are those of segments that do not open a connection.
var midstreamFlags = []uint8{
	0, frame.ACK, frame.PSH | frame.ACK, frame.FIN, frame.FIN | frame.ACK, frame.RST, frame.RST | frame.ACK, frame.URG,
	frame.SYN | frame.ACK, frame.SYN | frame.FIN, frame.SYN | frame.RST, frame.SYN | frame.FIN | frame.ACK, 0x3f, 0xff, 0xc0,
}

// midstreamRows are segments without a connection. Ports do not show which end is the client: the attacker chooses
// them.
func midstreamRows() (rows []attack) {
	for _, ports := range [][2]uint16{{1500, 80}, {40000, 50000}, {80, 40000}, {40000, 80}, {443, 443}} {
		rows = append(rows, attack{name: fmt.Sprintf("midstream segments, port %d to %d", ports[0], ports[1]), reasons: byPolicy, frames: func(s *attempt) (frames [][]byte) {
			for _, flags := range midstreamFlags {
				frames = append(frames, s.tcp(ports[0], ports[1], flags))
			}
			return frames
		}})
	}
	return rows
}

// segments belong to existing connections, or are malformed.
var segments = []attack{
	{name: "SYN into a connection of another pod", kind: denied, prepare: connectThird, frames: func(s *attempt) [][]byte {
		return [][]byte{
			s.tcp(s.live.client.Port(), s.live.server.Port(), frame.SYN), s.tcp(s.live.client.Port(), s.live.server.Port(), frame.RST|frame.ACK),
			s.tcp(s.live.client.Port(), s.live.server.Port(), frame.PSH|frame.ACK), s.tcp(s.live.server.Port(), s.live.client.Port(), frame.RST|frame.ACK),
		}
	}},
	{name: "SYN in reply direction of the victim's connection", kind: denied, prepare: connectVictim, frames: func(s *attempt) [][]byte {
		return [][]byte{s.tcp(s.live.server.Port(), s.live.client.Port(), frame.SYN), s.tcp(s.live.server.Port(), s.live.client.Port()+1, frame.PSH|frame.ACK)}
	}},
	{name: "connection of another pod, with its address", kind: forged, reasons: spoofed, prepare: connectThird, frames: func(s *attempt) (frames [][]byte) {
		for _, flags := range []uint8{frame.SYN, frame.RST, frame.RST | frame.ACK, frame.PSH | frame.ACK, frame.FIN | frame.ACK} {
			p := frame.TCP(s.live.client, s.live.server, frame.Segment{Flags: flags, Sequence: 1, Ack: 1}, s.token)
			frames = append(frames, s.frame(frame.IP{Source: s.live.client.Addr(), Destination: s.to(), Protocol: tcp, Payload: p}))
		}
		return frames
	}},
	{name: "TCP header length too short, or longer than the packet", kind: denied, frames: func(s *attempt) (frames [][]byte) {
		for words := uint8(0); words <= 15; words++ {
			p := frame.TCP(s.fromPort(), s.serverPort(), frame.Segment{Flags: frame.SYN, Words: words}, s.token)
			frames = append(frames, s.frame(s.ip(tcp, p)))
		}
		return frames
	}},
}

// connectThird connects the third pod to the victim.
func connectThird(s *attempt) (err error) {
	s.live, err = connect(s.third.Netns, s.victim.Netns, s.to())
	return err
}

// connectVictim connects the victim to the attacker, which policies always allow: only replies go to the victim.
func connectVictim(s *attempt) (err error) {
	s.live, err = connect(s.victim.Netns, s.attacker.Netns, s.from())
	return err
}
