package datapath

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
)

// behind plugs another host in behind the world, which routes to it and takes the way to carry less than both ends think.
func (n *network) behind(tb testing.TB, mtu int) (place, member) {
	tb.Helper()
	far := member{v4: addr("198.51.100.2"), v6: addr("2001:db8:51::2")}
	via := member{v4: addr("198.51.100.1"), v6: addr("2001:db8:51::1")}
	p := newPlace(tb)
	up := func(name string, own, other member, mtu int) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, family := range families {
			a := &netlink.Addr{IPNet: netlink.NewIPNet(own.addr(family).AsSlice()), Flags: unix.IFA_F_NODAD}
			err = errors.Join(err, netlink.AddrAdd(link, a))
		}
		err = errors.Join(err, netlink.LinkSetUp(link))
		for _, family := range families {
			a := other.addr(family)
			err = errors.Join(err, device.AddRoute(device.Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: link.Attrs().Index, MTU: mtu}))
		}
		return err
	}
	n.world.do(tb, func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "far", MTU: 1500})
		veth.PeerName, veth.PeerMTU, veth.PeerNamespace = "near", 1500, netlink.NsFd(int(p.ns.Fd()))
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		_, err := device.EnableForwarding("far", true, true)
		if err == nil {
			_, err = device.EnableForwarding("eth0", true, true)
		}
		return errors.Join(err, up("far", via, far, mtu))
	})
	p.do(tb, func() error {
		if err := up("near", far, via, 0); err != nil {
			return err
		}
		link, err := netlink.LinkByName("near")
		if err != nil {
			return err
		}
		return errors.Join(
			device.AddRoute(device.Route{Prefix: prefix("0.0.0.0/0"), Via: via.v4, Device: link.Attrs().Index}),
			device.AddRoute(device.Route{Prefix: prefix("::/0"), Via: via.v6, Device: link.Attrs().Index}))
	})
	return p, far
}

// A router of the world tells the node that a masqueraded packet was too large, and the pod that sent it learns it.
func TestMasqueradePathMTU(t *testing.T) {
	for _, routing := range []bool{true, false} {
		cfg := Config{EBPFRouting: routing, Masquerade: true}
		t.Run(cfgName(cfg), func(t *testing.T) {
			n := newNetwork(t, options{cfg: cfg})
			const carried = 1300
			far, where := n.behind(t, carried)
			for _, family := range families {
				far.serveTCP(t, where.addr(family))
				c := n.a1.dial(t, "tcp", where.addr(family))
				if err := echoTCP(c, 1<<17); err != nil {
					t.Errorf("IPv%d: %v", family, err)
				}
				level, option := unix.IPPROTO_IP, unix.IP_MTU
				if family == 6 {
					level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
				}
				if mtu := sockopt(t, c, level, option); mtu != carried {
					t.Errorf("IPv%d: the pod takes the way to carry %d bytes", family, mtu)
				}
			}
			n.dropsNothing(t)
		})
	}
}
