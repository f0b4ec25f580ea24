package adversary

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// paths are lies about the ways of the node itself: a node that believes them sends smaller packets, or elsewhere.
var paths = []attack{
	{name: "ICMP errors about what the node has sent to others", kind: forged, reasons: []string{"forged_error"}, after: nodePathsAreTrue, frames: func(s *scene) (frames [][]byte) {
		node := s.nodes[0].Addresses[s.family].Addr()
		for _, to := range []netip.Addr{s.nodes[1].Addresses[s.family].Addr(), s.to(), s.lab.lab.ClientAddresses()[s.family].Addr()} {
			a, b := netip.AddrPortFrom(node, vxlanPort), netip.AddrPortFrom(to, vxlanPort)
			inner := frame.Ethernet(s.victim.host, s.attacker.mac, frame.EtherType(node), s.syn())
			quoted := frame.IP{Source: node, Destination: to, Protocol: unix.IPPROTO_UDP, Payload: frame.UDP(a, b, frame.VXLAN(1, inner))}
			for _, e := range icmpErrors[s.family] {
				ip := s.ip(s.icmpProtocol(), frame.ICMP(s.from(), node, e.kind, e.code, e.rest, quoted.Packet()))
				ip.Destination = node
				frames = append(frames, s.frame(ip))
			}
		}
		return frames
	}},
}

// nodePathsAreTrue says that a node has an exception for a path.
func nodePathsAreTrue(s *scene) error {
	for _, to := range []netip.Addr{s.nodes[1].Addresses[s.family].Addr(), s.to(), s.lab.lab.ClientAddresses()[s.family].Addr()} {
		said, err := s.nodes[0].Place().Output(s.t.Context(), "ip", "route", "get", to.String())
		if err != nil {
			return err
		}
		if strings.Contains(string(said), "expires") || strings.Contains(string(said), "redirect") {
			return fmt.Errorf("node n1 believes %s", said)
		}
	}
	return nil
}
