package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Uplink is the name of a node's device on the wire.
const Uplink = "eth0"

// makeWire joins the nodes: two by one veth pair, so that nothing lies between them, else (or with clients outside)
// each by a pair to a bridge in a namespace of its own, which with several subnets is the router between them too.
func (l *Lab) makeWire() error {
	if l.Subnets > 1 {
		return l.makeRouter()
	}
	if len(l.nodes) == 2 && !l.Outside {
		return makePair(l.nodes[0].Path, Uplink, l.nodes[1].Path, Uplink, l.MTU)
	}
	switchNetns := nodeNetns(l.Name, wireName)
	if err := makeNetns(switchNetns, Options{IPv6: l.Outside && l.IPv6}, l.CongestionControl); err != nil {
		return err
	}
	if err := makeSwitch(switchNetns, wireName, l.MTU); err != nil {
		return err
	}
	if err := quietSwitch(switchNetns); err != nil {
		return err
	}
	if l.Outside {
		if err := l.makeOutside(); err != nil {
			return err
		}
	}
	for _, n := range l.nodes {
		if err := makePair(n.Path, Uplink, switchNetns, n.Name, l.MTU); err != nil {
			return err
		}
		if err := plugIn(switchNetns, wireName, n.Name); err != nil {
			return err
		}
	}
	return nil
}

// makePair makes a veth pair with its ends in two namespaces; it exists nowhere else before.
func makePair(netnsA, nameA, netnsB, nameB string, mtu int) error {
	b, err := netns.GetFromPath(netnsB)
	if err != nil {
		return fmt.Errorf("open %s: %w", netnsB, err)
	}
	defer b.Close()
	return Netns{Path: netnsA}.Netlink(func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = nameA, mtu
		err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: nameB, PeerNamespace: netlink.NsFd(b)})
		if errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("this kernel has no veth devices (CONFIG_VETH)")
		}
		if err != nil {
			return fmt.Errorf("make wire %s: %w", filepath.Base(netnsA), err)
		}
		return nil
	})
}

func makeSwitch(path, name string, mtu int) error {
	return Netns{Path: path}.Netlink(func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = name, mtu
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		err := h.LinkAdd(bridge)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return errors.New("this kernel has no bridges, which a lab of other than two nodes on one wire needs (CONFIG_BRIDGE)")
		}
		if err != nil {
			return fmt.Errorf("make switch: %w", err)
		}
		if err := h.LinkSetUp(bridge); err != nil {
			return fmt.Errorf("set switch up: %w", err)
		}
		return nil
	})
}

// quietSwitch keeps netfilter away from the frames of the switch, as it would be on a real one.
func quietSwitch(path string) error {
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		err := (Netns{Path: path}).WriteSysctl("net/bridge/bridge-nf-call-"+name, "0")
		if err != nil && !errors.Is(err, os.ErrNotExist) { // no br_netfilter: nothing to keep away
			return err
		}
	}
	return nil
}

// plugIn makes a device a port of a switch.
func plugIn(path, to, name string) error {
	return Netns{Path: path}.Netlink(func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(to)
		if err != nil {
			return fmt.Errorf("find switch: %w", err)
		}
		port, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find port %s: %w", name, err)
		}
		if err := h.LinkSetMaster(port, bridge); err != nil {
			return fmt.Errorf("plug in port %s: %w", name, err)
		}
		if err := h.LinkSetUp(port); err != nil {
			return fmt.Errorf("set port %s up: %w", name, err)
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
			if ctx.Err() != nil {
				return fmt.Errorf("%s of %s is not up: %w", Uplink, n.Name, ctx.Err())
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func (n *Node) reach(ctx context.Context, to netip.Addr) error {
	const discardPort = 9
	target := netip.AddrPortFrom(to, discardPort).String()
	for {
		err := n.Do(func() error {
			d := net.Dialer{Timeout: time.Second}
			conn, err := d.DialContext(ctx, "tcp", target)
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err == nil || errors.Is(err, unix.ECONNREFUSED) {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
