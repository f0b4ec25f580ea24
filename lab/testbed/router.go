package testbed

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// subnetSwitch is the name of a subnet's bridge.
func subnetSwitch(subnet int) string { return "subnet" + strconv.Itoa(subnet) }

// makeRouter joins nodes of several subnets in a namespace that forwards between them: the only node of a subnet by a
// pair, several by a bridge. The router has routes to the subnets and none to pods: it does not know the
// cluster.
func (l *Lab) makeRouter() error {
	path := nodeNetns(l.Name, wireName)
	if err := makeNetns(path, l.Options, l.CongestionControl); err != nil {
		return err
	}
	if err := (Netns{Path: path}).EnableForwarding(l.IPv6); err != nil {
		return err
	}
	if err := quietSwitch(path); err != nil {
		return err
	}
	for subnet := range l.Subnets {
		device, err := l.makeSubnet(path, subnet)
		if err != nil {
			return err
		}
		if err := (Netns{Path: path}).address(device, l.routers(subnet)); err != nil {
			return err
		}
	}
	return nil
}

// makeSubnet joins the nodes of one subnet and gives the name of the router's device in it. A bridge is only where one
// is needed: what is routed into it leaves its device in packets of the wire's size, if it comes in a tunnel.
func (l *Lab) makeSubnet(path string, subnet int) (device string, err error) {
	var nodes []*Node
	for _, n := range l.nodes {
		if n.Subnet == subnet {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) > 1 {
		device = subnetSwitch(subnet)
		if err := makeSwitch(path, device, l.MTU); err != nil {
			return "", err
		}
	}
	for _, n := range nodes {
		if err := makePair(n.Path, Uplink, path, n.Name, l.MTU); err != nil {
			return "", err
		}
		if device == "" {
			return n.Name, nil
		}
		if err := plugIn(path, device, n.Name); err != nil {
			return "", err
		}
	}
	return device, nil
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

// routeTo sends all that is not in the node's subnet to the router.
func (n *Node) routeTo(routers []netip.Prefix) error {
	return n.Netlink(func(h *netlink.Handle) error {
		for _, r := range routers {
			all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			if r.Addr().Is4() {
				all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			}
			if err := h.RouteAdd(&netlink.Route{Dst: IPNet(all), Gw: r.Addr().AsSlice()}); err != nil {
				return fmt.Errorf("route to the router %s: %w", r.Addr(), err)
			}
		}
		return nil
	})
}
