package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/beeline-cni/beeline/lab/wait"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Uplink is the name of a node's device on the wire.
const Uplink = "eth0"

// Switch is where the ports of the switch are that joins other than two nodes on one wire; the client outside, if there
// is one, is there, too.
func (l *Lab) Switch() Netns { return Netns{Path: nodeNetns(l.Name, wireName)} }

// SwitchPort is the name of the switch's device on the pair to a node, in the namespace of Switch.
func (l *Lab) SwitchPort(n *Node) string { return n.Name }

// Client is where a client that does not belong to the cluster runs: on the switch, with an address on the wire. It
// exists in labs with the option Outside.
func (l *Lab) Client() Netns {
	client := l.Switch()
	client.Cgroup = l.cgroupBeside("outside")
	return client
}

// ClientAddresses are those of the client outside with the wire's prefix length, IPv4 first.
func (l *Lab) ClientAddresses() []netip.Prefix { return l.wire(0, clientHost) }

// makeWire joins the nodes: two by one veth pair, so that nothing lies between them, else (or with clients outside) in a
// namespace of its own. With several subnets that is the router between them. It has routes to the subnets and none to
// pods: it does not know the cluster.
func (l *Lab) makeWire() error {
	if len(l.nodes) == 2 && l.Subnets == 1 && !l.Outside {
		return makePair(l.nodes[0].Netns, netlink.LinkAttrs{Name: Uplink, MTU: l.MTU}, l.nodes[1])
	}
	routes := l.Subnets > 1
	wire := l.Switch()
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
	for subnet := range l.Subnets {
		device, err := l.makeSubnet(wire, subnet)
		if err != nil {
			return err
		}
		if routes {
			err = wire.address(device, l.wire(subnet, routerHost))
		} else if l.Outside {
			err = wire.address(device, l.ClientAddresses())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// makeSubnet joins the nodes of one subnet by a bridge and returns its name. The only node of a subnet that is routed has
// a pair and no bridge: what is routed into a bridge leaves its device in packets of the wire's size, if it comes in a
// tunnel.
func (l *Lab) makeSubnet(wire Netns, subnet int) (device string, err error) {
	var nodes []*Node
	for _, n := range l.nodes {
		if n.Subnet == subnet {
			nodes = append(nodes, n)
		}
	}
	if l.Subnets > 1 && len(nodes) == 1 {
		port := l.SwitchPort(nodes[0])
		return port, makePair(wire, netlink.LinkAttrs{Name: port, MTU: l.MTU}, nodes[0])
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("subnet%d", subnet), MTU: l.MTU, TxQLen: -1}}
	err = wire.Netlink(func(h *netlink.Handle) error {
		err := h.LinkAdd(bridge)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("this kernel has no bridges, which a lab of other than two nodes on one wire needs (CONFIG_BRIDGE)")
		}
		if err != nil {
			return fmt.Errorf("make switch: %w", err)
		}
		return h.LinkSetUp(bridge)
	})
	for _, n := range nodes {
		if err != nil {
			break
		}
		err = makePair(wire, netlink.LinkAttrs{Name: l.SwitchPort(n), MTU: l.MTU, MasterIndex: bridge.Index}, n)
	}
	return bridge.Name, err
}

// makePair makes a veth pair with one end in a namespace, up, and the other as the uplink of a node. It exists nowhere
// else before.
func makePair(in Netns, end netlink.LinkAttrs, n *Node) error {
	peer, err := netns.GetFromPath(n.Path)
	if err != nil {
		return fmt.Errorf("open %s: %w", n.Path, err)
	}
	defer peer.Close()
	return in.Netlink(func(h *netlink.Handle) error {
		end.TxQLen = -1 // the kernel's default
		veth := &netlink.Veth{LinkAttrs: end, PeerName: Uplink, PeerNamespace: netlink.NsFd(peer)}
		err := h.LinkAdd(veth)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("this kernel has no veth devices (CONFIG_VETH)")
		}
		if err == nil {
			err = h.LinkSetUp(veth)
		}
		if err != nil {
			return fmt.Errorf("wire node %s: %w", n.Name, err)
		}
		return nil
	})
}

// address adds addresses to a device and sets it up.
func (n Netns) address(device string, addresses []netip.Prefix) error {
	return n.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(device)
		if err != nil {
			return fmt.Errorf("find %s: %w", device, err)
		}
		for _, a := range addresses {
			addr := &netlink.Addr{IPNet: IPNet(a)}
			if a.Addr().Is6() {
				addr.Flags = unix.IFA_F_NODAD
			}
			if err := h.AddrAdd(link, addr); err != nil {
				return fmt.Errorf("add address %s to %s: %w", a, device, err)
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", device, err)
		}
		return nil
	})
}

// addRoutes gives a node its routes beyond the subnet: by the router to everything, and by the client outside to further
// clients.
func (l *Lab) addRoutes(n *Node) error {
	var to, via []netip.Prefix
	if l.Subnets > 1 {
		to = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
		via = l.wire(n.Subnet, routerHost)
	} else if l.Outside {
		to = []netip.Prefix{ClientNetworkIPv4, ClientNetworkIPv6}
		via = l.ClientAddresses()
	}
	return n.Netlink(func(h *netlink.Handle) error {
		for i, gateway := range via {
			if err := h.RouteAdd(&netlink.Route{Dst: IPNet(to[i]), Gw: gateway.Addr().AsSlice()}); err != nil {
				return fmt.Errorf("route to %s via %s: %w", to[i], gateway.Addr(), err)
			}
		}
		return nil
	})
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
// lost, and the neighbour is asked again only after a second.
func (n *Node) waitCarrier(ctx context.Context) error {
	return n.Netlink(func(h *netlink.Handle) error {
		for {
			link, err := h.LinkByName(Uplink)
			if err != nil {
				return fmt.Errorf("find %s of %s: %w", Uplink, n.Name, err)
			}
			if link.Attrs().OperState == netlink.OperUp {
				return nil
			}
			if wait.For(ctx, time.Millisecond) != nil {
				return fmt.Errorf("%s of %s is not up: %w", Uplink, n.Name, ctx.Err())
			}
		}
	})
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
