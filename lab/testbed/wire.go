package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/wait"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uplink is the name of a node's device on the wire.
const Uplink = "eth0"

// Switch is where the ports of the switch are that joins other than two nodes on one wire; the client outside, if there
// is one, is there, too.
func (l *Lab) Switch() Netns {
	return Netns{Path: nodeNetns(l.Name, wireName), Cgroup: filepath.Dir(l.nodes[0].Cgroup)}
}

// SwitchPort is the name of the switch's device on the pair to a node, in the namespace of Switch.
func (l *Lab) SwitchPort(n *Node) string { return n.Name }

// Client is where a client that does not belong to the cluster runs: on the switch, with an address on the wire. It
// exists in labs with the option Outside.
func (l *Lab) Client() Netns {
	client := l.Switch()
	client.Cgroup = filepath.Join(client.Cgroup, "outside")
	return client
}

// ClientAddresses are those of the client outside with the wire's prefix length, IPv4 first.
func (l *Lab) ClientAddresses() []netip.Prefix { return l.wire(0, clientHost) }

// makeWire joins the nodes: two by one veth pair, so that nothing lies between them, else (or with clients outside) in a
// namespace of its own. With several subnets that is the router between them. It has routes to the subnets and none to
// pods: it does not know the cluster.
func (l *Lab) makeWire(ctx context.Context) error {
	if len(l.nodes) == 2 && l.Subnets == 1 && !l.Outside {
		return l.nodes[0].ip(ctx, l.pair(Uplink, l.nodes[1]))
	}
	wire, routes := l.Switch(), l.Subnets > 1
	if err := l.makeNetns(wire, l.IPv6 && (l.Outside || routes)); err != nil {
		return err
	}
	if routes {
		if err := wire.EnableForwarding(l.IPv6); err != nil {
			return err
		}
	}
	// netfilter stays away from the frames of a switch, as it would of a real one.
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		err := wire.WriteSysctl("net/bridge/bridge-nf-call-"+name, "0")
		if err != nil && !errors.Is(err, os.ErrNotExist) { // no br_netfilter: nothing to keep away
			return err
		}
	}
	var commands []string
	for subnet := range l.Subnets {
		commands = append(commands, l.subnet(subnet)...)
	}
	return wire.ip(ctx, commands...)
}

// subnet are the commands that join the nodes of one subnet by a bridge. The only node of a subnet that is routed has a
// pair and no bridge: what is routed into a bridge leaves its device in packets of the wire's size, if it comes in a
// tunnel.
func (l *Lab) subnet(subnet int) (commands []string) {
	var nodes []*Node
	for _, n := range l.nodes {
		if n.Subnet == subnet {
			nodes = append(nodes, n)
		}
	}
	device, port := fmt.Sprintf("subnet%d", subnet), ""
	if l.Subnets > 1 && len(nodes) == 1 {
		device = l.SwitchPort(nodes[0])
	} else {
		port = " master " + device
		commands = append(commands, fmt.Sprintf("link add %s mtu %d type bridge", device, l.MTU), "link set "+device+" up")
	}
	for _, n := range nodes {
		commands = append(commands, l.pair(l.SwitchPort(n)+port, n), "link set "+l.SwitchPort(n)+" up")
	}
	var addresses []netip.Prefix
	if l.Subnets > 1 {
		addresses = l.wire(subnet, routerHost)
	} else if l.Outside {
		addresses = l.ClientAddresses()
	}
	return append(commands, addressCommands(device, addresses)...)
}

// pair is the command that makes a veth pair whose other end is the uplink of a node. It exists nowhere else before.
func (l *Lab) pair(end string, n *Node) string {
	return fmt.Sprintf("link add %s mtu %d type veth peer name %s mtu %[2]d netns %[4]s", end, l.MTU, Uplink, filepath.Base(n.Path))
}

func addressCommands(device string, addresses []netip.Prefix) (commands []string) {
	for _, a := range addresses {
		commands = append(commands, fmt.Sprintf("address add %s dev %s", a, device))
	}
	return commands
}

// configure gives a node its addresses, and its routes beyond the subnet: by the router to everything, and by the client
// outside to further clients.
func (l *Lab) configure(ctx context.Context, n *Node) error {
	commands := append(addressCommands(Uplink, n.Addresses), "link set "+Uplink+" up")
	var to []string
	var via []netip.Prefix
	if l.Subnets > 1 {
		to, via = []string{"0.0.0.0/0", "::/0"}, l.wire(n.Subnet, routerHost)
	} else if l.Outside {
		to, via = []string{ClientNetworkIPv4.String(), ClientNetworkIPv6.String()}, l.ClientAddresses()
	}
	for i, gateway := range via {
		commands = append(commands, fmt.Sprintf("route add %s via %s", to[i], gateway.Addr()))
	}
	return n.ip(ctx, commands...)
}

// ip runs commands of ip(8).
func (n Netns) ip(ctx context.Context, commands ...string) error {
	return n.Input(ctx, strings.Join(commands, "\n"), "ip", "-batch", "-")
}

// waitForNeighbours waits until every node has reached every later one over each family, so that neighbours are known
// on both sides. A rejected connection is a reply.
func (l *Lab) waitForNeighbours(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, n := range l.nodes {
		if err := n.waitCarrier(ctx); err != nil {
			return err
		}
	}
	for i, from := range l.nodes {
		for _, to := range l.nodes[i+1:] {
			for _, a := range to.Addresses {
				if err := from.reach(ctx, a.Addr()); err != nil {
					return fmt.Errorf("reach %s from %s: %w", a.Addr(), from.Name, err)
				}
			}
		}
	}
	return nil
}

// waitCarrier waits until the kernel's linkwatch has noticed that the device is up: what is sent before is
// lost, and the neighbour is asked again only after a second. The kernel then makes its addresses usable, also without
// looking for duplicates.
func (n *Node) waitCarrier(ctx context.Context) error {
	return n.Netlink(func(h *netlink.Handle) error {
		for {
			link, err := h.LinkByName(Uplink)
			if err != nil {
				return fmt.Errorf("find %s of %s: %w", Uplink, n.Name, err)
			}
			tentative, err := hasTentative(h, link)
			if err != nil {
				return fmt.Errorf("list addresses of %s of %s: %w", Uplink, n.Name, err)
			}
			if link.Attrs().OperState == netlink.OperUp && !tentative {
				return nil
			}
			if wait.For(ctx, time.Millisecond) != nil {
				return fmt.Errorf("%s of %s is not up with usable addresses: %w", Uplink, n.Name, ctx.Err())
			}
		}
	})
}

// hasTentative reports whether a device has an address that the kernel does not use yet.
func hasTentative(h *netlink.Handle, link netlink.Link) (bool, error) {
	addresses, err := h.AddrList(link, unix.AF_INET6)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil // the kernel has no IPv6
	}
	return slices.ContainsFunc(addresses, func(a netlink.Addr) bool { return a.Flags&unix.IFA_F_TENTATIVE != 0 }), err
}

func (n *Node) reach(ctx context.Context, to netip.Addr) error {
	const discardPort = 9
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		conn, err := n.Dial(attempt, netip.AddrPortFrom(to, discardPort))
		cancel()
		if err == nil {
			return conn.Close()
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		if wait.For(ctx, 10*time.Millisecond) != nil {
			return err
		}
	}
}
