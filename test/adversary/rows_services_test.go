package adversary

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// frontend is another address of a victim than its own, seen from the node that gets the frames.
type frontend struct {
	name string
	kind kind
	to   func(*scene) netip.AddrPort
	// outside says that it answers clients outside of the cluster too.
	outside bool
}

// frontends are all at which Services may answer, and some at which they must not.
func frontends() []frontend {
	return []frontend{
		{"the node's NodePort", detour, func(s *scene) netip.AddrPort { return s.nodePort(s.here()) }, true},
		{"another node's NodePort", detour, func(s *scene) netip.AddrPort { return s.nodePort(s.there()) }, true},
		{"the ClusterIP", detour, func(s *scene) netip.AddrPort { return netip.AddrPortFrom(s.service().cluster[s.family], serverPort) }, false},
		{"the load balancer's address", detour, func(s *scene) netip.AddrPort { return netip.AddrPortFrom(s.service().balancer[s.family], serverPort) }, true},
		{"an external IP", detour, func(s *scene) netip.AddrPort { return netip.AddrPortFrom(s.service().external[s.family], serverPort) }, true},
		{"the NodePort at the gateway", guarded, func(s *scene) netip.AddrPort { return netip.AddrPortFrom(s.gateway(), s.service().nodePort) }, false},
		{"the NodePort at the ClusterIP", guarded, func(s *scene) netip.AddrPort {
			return netip.AddrPortFrom(s.service().cluster[s.family], s.service().nodePort)
		}, false},
		{"the NodePort at another address of the node", guarded, func(s *scene) netip.AddrPort {
			return netip.AddrPortFrom(secondAddress(s.here(), s.family), s.service().nodePort)
		}, false},
	}
}

// detours lead to a victim by other addresses than its own.
func detours() (rows []attack) {
	for _, by := range frontends() {
		rows = append(rows, attack{name: "by " + by.name, kind: by.kind, frames: func(s *scene) [][]byte {
			return slices.Concat(s.openers(s.from(), by.to(s)), s.middles(s.from(), by.to(s)))
		}})
	}
	return rows
}

// openers are a SYN and a datagram from a source to a frontend.
func (s *scene) openers(source netip.Addr, to netip.AddrPort) [][]byte {
	from := netip.AddrPortFrom(source, s.port)
	syn := frame.TCP(from, to, frame.Segment{Flags: frame.SYN}, s.token)
	return [][]byte{s.frame(frame.IP{Source: source, Destination: to.Addr(), Protocol: tcp, Payload: syn}), s.udpTo(from, to, append(make([]byte, 16), s.token...))}
}

// middles are segments of connections that nobody has opened, and a datagram in pieces.
func (s *scene) middles(source netip.Addr, to netip.AddrPort) (frames [][]byte) {
	for i, flags := range []uint8{frame.PSH | frame.ACK, frame.SYN | frame.ACK} {
		from := netip.AddrPortFrom(source, s.port+uint16(i)+1)
		frames = append(frames, s.frame(frame.IP{Source: source, Destination: to.Addr(), Protocol: tcp, Payload: frame.TCP(from, to, frame.Segment{Flags: flags}, s.token)}))
	}
	datagram := frame.UDP(netip.AddrPortFrom(source, s.port), to, append(make([]byte, 16), s.token...))
	udp := frame.IP{Source: source, Destination: to.Addr(), Protocol: unix.IPPROTO_UDP}
	return append(frames, s.frame(udp.Piece(datagram, 0, 24, s.id())), s.frame(udp.Piece(datagram, 24, len(datagram), s.id())))
}

func (s *scene) service() service { return services[s.victim.Name] }

// here is the node that gets the frames, there the other one.
func (s *scene) here() *node  { return s.attacker.node }
func (s *scene) there() *node { return s.nodes[2-s.attacker.node.Index] }

// nodePort is the victim's at a node.
func (s *scene) nodePort(n *node) netip.AddrPort {
	return netip.AddrPortFrom(n.Addresses[s.family].Addr(), s.service().nodePort)
}

// gateway is the node as pods see it on their link.
func (s *scene) gateway() netip.Addr {
	if s.is4() {
		return netip.MustParseAddr("169.254.1.1")
	}
	return linkLocal(s.attacker.host)
}
