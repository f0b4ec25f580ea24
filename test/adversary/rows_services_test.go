package adversary

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// detours lead to a victim by other addresses than its own.
func detours() (rows []attack) {
	for _, by := range []struct {
		name string
		kind kind
		to   func(*scene) netip.AddrPort
	}{
		{"the node's NodePort", detour, func(s *scene) netip.AddrPort { return s.nodePort(0) }},
		{"another node's NodePort", detour, func(s *scene) netip.AddrPort { return s.nodePort(1) }},
		{"the ClusterIP", detour, func(s *scene) netip.AddrPort { return netip.AddrPortFrom(s.service().cluster[s.family], serverPort) }},
		{"the load balancer's address", detour, func(s *scene) netip.AddrPort { return netip.AddrPortFrom(s.service().balancer[s.family], serverPort) }},
		{"the NodePort at the gateway", guarded, func(s *scene) netip.AddrPort { return netip.AddrPortFrom(s.gateway(), s.service().nodePort) }},
		{"the NodePort at the ClusterIP", guarded, func(s *scene) netip.AddrPort {
			return netip.AddrPortFrom(s.service().cluster[s.family], s.service().nodePort)
		}},
		{"the NodePort at another address of the node", guarded, func(s *scene) netip.AddrPort {
			return netip.AddrPortFrom(secondAddress(s.nodes[0], s.family), s.service().nodePort)
		}},
	} {
		rows = append(rows, attack{name: "by " + by.name, kind: by.kind, frames: func(s *scene) (frames [][]byte) {
			for i, flags := range []uint8{frame.SYN, frame.PSH | frame.ACK, frame.SYN | frame.ACK} {
				from := netip.AddrPortFrom(s.from(), s.port+uint16(i))
				frames = append(frames, s.frame(frame.IP{Source: s.from(), Destination: by.to(s).Addr(), Protocol: tcp, Payload: frame.TCP(from, by.to(s), frame.Segment{Flags: flags}, s.token)}))
			}
			datagram := frame.UDP(s.fromPort(), by.to(s), append(make([]byte, 16), s.token...))
			udp := frame.IP{Source: s.from(), Destination: by.to(s).Addr(), Protocol: unix.IPPROTO_UDP}
			first, second := udp.Piece(datagram, 0, 24, s.id()), udp.Piece(datagram, 24, len(datagram), s.id())
			udp.Payload = datagram
			return append(frames, s.frame(udp), s.frame(first), s.frame(second))
		}})
	}
	return rows
}

func (s *scene) service() service { return services[s.victim.Name] }

// nodePort is the victim's at the node of this index.
func (s *scene) nodePort(index int) netip.AddrPort {
	return netip.AddrPortFrom(s.nodes[index].Addresses[s.family].Addr(), s.service().nodePort)
}

// gateway is the node as pods see it on their link.
func (s *scene) gateway() netip.Addr {
	if s.is4() {
		return netip.MustParseAddr("169.254.1.1")
	}
	return linkLocal(s.attacker.host)
}
