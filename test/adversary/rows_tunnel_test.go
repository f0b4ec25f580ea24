package adversary

import (
	"net/netip"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// tunnelRows are VXLAN packets that pods send: to each address at which a node may decapsulate, with several inner
// sources.
func tunnelRows() (rows []attack) {
	for _, inner := range []struct {
		name   string
		source func(*attempt) netip.Addr
	}{
		{"its own", (*attempt).from},
		{"another pod's", func(s *attempt) netip.Addr { return s.third.Addresses[s.family] }},
		{"the victim's node's", func(s *attempt) netip.Addr { return s.victim.node.Addresses[s.family].Addr() }},
		{"a node's", func(s *attempt) netip.Addr { return s.nodes[0].Addresses[s.family].Addr() }},
	} {
		rows = append(rows, attack{name: "VXLAN with " + inner.name + " address inside", kind: forged, leavesNode: true, frames: func(s *attempt) (frames [][]byte) {
			for _, outer := range s.tunnelEnds() {
				for _, vni := range []uint32{1, 0} {
					p := frame.IP{Source: inner.source(s), Destination: s.to(), Protocol: tcp}
					p.Payload = frame.TCP(netip.AddrPortFrom(inner.source(s), s.port), s.serverPort(), frame.Segment{Flags: frame.SYN}, s.token)
					packet := s.vxlan(vni, p)
					from := s.attacker.Addresses[0]
					if outer.Addr().Is6() {
						from = s.attacker.Addresses[1]
					}
					frames = append(frames, s.udpTo(netip.AddrPortFrom(from, s.port), outer, packet))
				}
			}
			return frames
		}})
	}
	return rows
}

// tunnelEnds are addresses at which the victim's or the attacker's node may decapsulate.
func (s *attempt) tunnelEnds() (ends []netip.AddrPort) {
	for family := range podPrefixLengths {
		for _, n := range s.nodes {
			ends = append(ends, netip.AddrPortFrom(n.Addresses[family].Addr(), vxlanPort), netip.AddrPortFrom(secondAddress(n, family), vxlanPort),
				netip.AddrPortFrom(n.Addresses[family].Addr(), tunnelService.nodePort))
		}
		ends = append(ends, netip.AddrPortFrom(tunnelService.cluster[family], vxlanPort), netip.AddrPortFrom(tunnelService.balancer[family], vxlanPort))
	}
	return ends
}

// vxlan returns a packet encapsulated for the victim's node.
func (s *attempt) vxlan(vni uint32, inner frame.IP) []byte {
	return frame.VXLAN(vni, frame.Ethernet(s.victim.host, s.attacker.mac, frame.EtherType(inner.Source), inner.Packet()))
}

// peerTunnel are packets on the nodes' link that imitate the other node's tunnel, with an inner source that is not of
// that node.
var peerTunnel = attack{name: "VXLAN of another node with a source that is not its own", kind: forged, frames: func(s *attempt) (frames [][]byte) {
	for family := range podPrefixLengths {
		outer := netip.AddrPortFrom(s.nodes[2-s.victim.node.Index].Addresses[family].Addr(), s.port)
		to := netip.AddrPortFrom(s.victim.node.Addresses[family].Addr(), vxlanPort)
		for _, source := range []netip.Addr{s.victimNodePod(), s.to(), s.victim.node.Addresses[s.family].Addr(), s.from(), s.addr("198.51.100.7", "2001:db8::7")} {
			p := frame.IP{Source: source, Destination: s.to(), Protocol: tcp}
			p.Payload = frame.TCP(netip.AddrPortFrom(source, s.port), s.serverPort(), frame.Segment{Flags: frame.SYN}, s.token)
			frames = append(frames, s.udpTo(outer, to, s.vxlan(1, p)))
		}
	}
	return frames
}}

// victimNodePod is another pod on the victim's node: the admitted one, if that is there.
func (s *attempt) victimNodePod() netip.Addr {
	switch {
	case s.victim.node == s.third.node:
		return s.third.Addresses[s.family]
	case s.victim.app == unselected:
		return s.pod(isolated, s.victim.node.Index).Addresses[s.family]
	default:
		return s.pod(unselected, s.victim.node.Index).Addresses[s.family]
	}
}
