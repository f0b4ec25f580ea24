package adversary

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// frontend is an address and port at which a victim may be reached, from the receiving node's point of view.
type frontend struct {
	name string
	kind kind
	to   func(*attempt) netip.AddrPort
	// external: it serves clients outside the cluster too.
	external bool
}

// frontends are all at which Services may be reached, and some at which they must not.
func frontends() []frontend {
	return []frontend{
		{"the node's NodePort", indirect, func(s *attempt) netip.AddrPort { return s.nodePort(s.receiver()) }, true},
		{"another node's NodePort", indirect, func(s *attempt) netip.AddrPort { return s.nodePort(s.otherNode()) }, true},
		{"the ClusterIP", indirect, func(s *attempt) netip.AddrPort { return netip.AddrPortFrom(s.service().cluster[s.family], serverPort) }, false},
		{"the load balancer's address", indirect, func(s *attempt) netip.AddrPort { return netip.AddrPortFrom(s.service().balancer[s.family], serverPort) }, true},
		{"an external IP", indirect, func(s *attempt) netip.AddrPort { return netip.AddrPortFrom(s.service().external[s.family], serverPort) }, true},
		{"the NodePort at the gateway", denied, func(s *attempt) netip.AddrPort { return netip.AddrPortFrom(s.gateway(), s.service().nodePort) }, false},
		{"the NodePort at the ClusterIP", denied, func(s *attempt) netip.AddrPort {
			return netip.AddrPortFrom(s.service().cluster[s.family], s.service().nodePort)
		}, false},
		{"the NodePort at another address of the node", denied, func(s *attempt) netip.AddrPort {
			return netip.AddrPortFrom(secondAddress(s.receiver(), s.family), s.service().nodePort)
		}, false},
	}
}

// indirectRows send to a victim through its frontends.
func indirectRows() (rows []attack) {
	for _, by := range frontends() {
		rows = append(rows, attack{name: "via " + by.name, kind: by.kind, frames: func(s *attempt) [][]byte {
			return slices.Concat(s.newFlows(s.from(), by.to(s)), s.midstream(s.from(), by.to(s)))
		}})
	}
	return rows
}

// newFlows returns a SYN and a datagram from a source to a frontend.
func (s *attempt) newFlows(source netip.Addr, to netip.AddrPort) [][]byte {
	from := netip.AddrPortFrom(source, s.port)
	syn := frame.TCP(from, to, frame.Segment{Flags: frame.SYN}, s.token)
	return [][]byte{s.frame(frame.IP{Source: source, Destination: to.Addr(), Protocol: tcp, Payload: syn}), s.udpTo(from, to, append(make([]byte, 16), s.token...))}
}

// midstream returns segments without a connection, and a datagram in fragments.
func (s *attempt) midstream(source netip.Addr, to netip.AddrPort) (frames [][]byte) {
	for i, flags := range []uint8{frame.PSH | frame.ACK, frame.SYN | frame.ACK} {
		from := netip.AddrPortFrom(source, s.port+uint16(i)+1)
		frames = append(frames, s.frame(frame.IP{Source: source, Destination: to.Addr(), Protocol: tcp, Payload: frame.TCP(from, to, frame.Segment{Flags: flags}, s.token)}))
	}
	datagram := frame.UDP(netip.AddrPortFrom(source, s.port), to, append(make([]byte, 16), s.token...))
	udp := frame.IP{Source: source, Destination: to.Addr(), Protocol: unix.IPPROTO_UDP}
	return append(frames, s.frame(udp.Piece(datagram, 0, 24, s.id())), s.frame(udp.Piece(datagram, 24, len(datagram), s.id())))
}

func (s *attempt) service() service { return services[s.victim.Name] }

// receiver is the node that receives the frames.
func (s *attempt) receiver() *node  { return s.attacker.node }
func (s *attempt) otherNode() *node { return s.nodes[2-s.attacker.node.Index] }

// nodePort is the victim's at a node.
func (s *attempt) nodePort(n *node) netip.AddrPort {
	return netip.AddrPortFrom(n.Addresses[s.family].Addr(), s.service().nodePort)
}

// gateway is the node's address on the pods' link.
func (s *attempt) gateway() netip.Addr {
	if s.is4() {
		return netip.MustParseAddr("169.254.1.1")
	}
	return linkLocal(s.attacker.host)
}
