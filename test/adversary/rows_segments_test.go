package adversary

import (
	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// segments are of connections that are there, or not quite TCP.
var segments = []attack{
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
