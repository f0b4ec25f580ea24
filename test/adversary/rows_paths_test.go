package adversary

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// paths are forged path information for the node itself: a node that accepts it lowers its MTU or redirects a route.
var paths = []attack{
	{name: "ICMP errors about packets of the node", kind: forged, reasons: []string{"forged_error"}, check: checkPaths, frames: func(s *attempt) (frames [][]byte) {
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

// checkPaths returns an error if a node has a path exception.
func checkPaths(s *attempt) error {
	for _, to := range []netip.Addr{s.nodes[1].Addresses[s.family].Addr(), s.to(), s.lab.lab.ClientAddresses()[s.family].Addr()} {
		out, err := s.nodes[0].Output(s.t.Context(), "ip", "route", "get", to.String())
		if err != nil {
			return err
		}
		if strings.Contains(string(out), "expires") || strings.Contains(string(out), "redirect") {
			return fmt.Errorf("node n1 accepted %s", out)
		}
	}
	return nil
}
