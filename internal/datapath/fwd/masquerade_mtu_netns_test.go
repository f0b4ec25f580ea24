package fwd_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// behind adds an external host behind a router whose path MTU is lower than both ends assume.
func behind(n *netlab.Network, tb testing.TB, mtu int) (netlab.Netns, fixtures.Member) {
	tb.Helper()
	far := fixtures.Member{V4: fixtures.Addr("198.51.100.2"), V6: fixtures.Addr("2001:db8:51::2")}
	via := fixtures.Member{V4: fixtures.Addr("198.51.100.1"), V6: fixtures.Addr("2001:db8:51::1")}
	p := netlab.NewNetns(tb)
	up := func(name string, own, other fixtures.Member, mtu int) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, family := range fixtures.Families {
			a := &netlink.Addr{IPNet: netlink.NewIPNet(own.Addr(family).AsSlice()), Flags: unix.IFA_F_NODAD}
			err = errors.Join(err, netlink.AddrAdd(link, a))
		}
		err = errors.Join(err, netlink.LinkSetUp(link))
		for _, family := range fixtures.Families {
			a := other.Addr(family)
			err = errors.Join(err, route.Add(route.Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: link.Attrs().Index, MTU: mtu}))
		}
		return err
	}
	n.External.Do(tb, func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "far", MTU: 1500})
		veth.PeerName, veth.PeerMTU, veth.PeerNamespace = "near", 1500, netlink.NsFd(int(p.Ns.Fd()))
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		_, err := sysctl.EnableForwarding("far", true, true)
		if err == nil {
			_, err = sysctl.EnableForwarding("eth0", true, true)
		}
		return errors.Join(err, up("far", via, far, mtu))
	})
	p.Do(tb, func() error {
		if err := up("near", far, via, 0); err != nil {
			return err
		}
		link, err := netlink.LinkByName("near")
		if err != nil {
			return err
		}
		return errors.Join(
			route.Add(route.Route{Prefix: fixtures.Prefix("0.0.0.0/0"), Via: via.V4, Device: link.Attrs().Index}),
			route.Add(route.Route{Prefix: fixtures.Prefix("::/0"), Via: via.V6, Device: link.Attrs().Index}))
	})
	return p, far
}

// A router reports that a masqueraded packet was too large, and the sending pod gets the error.
func TestMasqueradePathMTU(t *testing.T) {
	for _, routing := range []bool{true, false} {
		cfg := config.Datapath{EBPFRouting: routing, Masquerade: true}
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
			const carried = 1300
			far, where := behind(n, t, carried)
			for _, family := range fixtures.Families {
				far.ServeTCP(t, where.Addr(family))
				c := n.A1.Dial(t, "tcp", where.Addr(family))
				if err := netlab.EchoTCP(c, 1<<17); err != nil {
					t.Errorf("IPv%d: %v", family, err)
				}
				level, option := unix.IPPROTO_IP, unix.IP_MTU
				if family == 6 {
					level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
				}
				if mtu := netlab.Sockopt(t, c, level, option); mtu != carried {
					t.Errorf("IPv%d: the pod's path MTU is %d", family, mtu)
				}
			}
			n.DropsNothing(t)
		})
	}
}
