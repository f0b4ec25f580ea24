package testbed

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// outsideHost is the number of the client outside in the wire's subnet, above those of all nodes and below the
// router's.
const outsideHost = 250

// ClientNetworkIPv4 and ClientNetworkIPv6 hold addresses of further clients outside of the cluster, behind the one that
// Lab.Client gives: the ranges that RFC 2544 and RFC 5180 keep for benchmarks. Nodes of a lab with Outside have routes
// to them.
var (
	ClientNetworkIPv4 = netip.MustParsePrefix("198.18.0.0/15")
	ClientNetworkIPv6 = netip.MustParsePrefix("2001:2::/48")
)

// Client is where a client that does not belong to the cluster runs: on the switch, with an address on the wire. It
// exists in labs with the option Outside.
func (l *Lab) Client() Netns {
	return Netns{Path: nodeNetns(l.Name, wireName), Cgroup: l.outsideCgroup()}
}

// ClientAddresses are those of the client outside with the wire's prefix length, IPv4 first.
func (l *Lab) ClientAddresses() []netip.Prefix {
	addresses := []netip.Prefix{wireIPv4(0, outsideHost)}
	if l.IPv6 {
		addresses = append(addresses, wireIPv6(0, outsideHost))
	}
	return addresses
}

// Switch is where the ports of the switch are that joins more than two nodes; the client outside, if there is one, is
// there, too.
func (l *Lab) Switch() Netns { return Netns{Path: nodeNetns(l.Name, wireName)} }

// SwitchPort is the name of the switch's device on the pair to a node, in the namespace of Switch.
func (l *Lab) SwitchPort(n *Node) string { return n.Name }

func (l *Lab) outsideCgroup() string {
	return filepath.Join(filepath.Dir(l.nodes[0].Cgroup), "outside")
}

// makeOutside returns the switch addresses of its own, which are those of the client, and the client a cgroup.
func (l *Lab) makeOutside() error {
	if err := os.MkdirAll(l.outsideCgroup(), 0o755); err != nil {
		return err
	}
	return l.Switch().address(wireName, l.ClientAddresses())
}

// routeToClients sends what is for the networks of clients to the client outside, at these addresses.
func (n *Node) routeToClients(outside []netip.Prefix) error {
	return n.Netlink(func(h *netlink.Handle) error {
		for _, at := range outside {
			clients := ClientNetworkIPv4
			if at.Addr().Is6() {
				clients = ClientNetworkIPv6
			}
			if err := h.RouteAdd(&netlink.Route{Dst: IPNet(clients), Gw: at.Addr().AsSlice()}); err != nil {
				return fmt.Errorf("route to clients via %s: %w", at.Addr(), err)
			}
		}
		return nil
	})
}
