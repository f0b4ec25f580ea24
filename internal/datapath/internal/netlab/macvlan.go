package netlab

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	table "github.com/beeline-cni/beeline/internal/datapath/macvlan"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/macvlan"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sock"
)

// MacvlanPods are two members with addresses of the nodes' link.
var MacvlanPods = []fixtures.Member{
	{V4: fixtures.Addr("172.30.0.21"), V6: fixtures.Addr("fd00:172:30::21")},
	{V4: fixtures.Addr("172.30.0.22"), V6: fixtures.Addr("fd00:172:30::22")},
}

// AddMacvlan makes a pod with a macvlan device on the node's uplink, and its entries in the tables.
func (n *Node) AddMacvlan(tb testing.TB, id string, m fixtures.Member) *Pod {
	tb.Helper()
	p := &Pod{Netns: NewNetns(tb), Node: n, Member: m, id: id, macvlan: true}
	n.Do(tb, func() (err error) {
		spec := device.PodSpec{Kind: device.Veth, ContainerID: id, IfName: "host0", Netns: p.Path(), MTU: 1500}
		if p.Pair, err = device.Pods.Create(spec); err != nil {
			return err
		}
		copy(p.Gateway[:], p.Pair.HostMAC)
		made, err := macvlan.Create(p.Ns, macvlan.Spec{Parent: n.Uplink.Index, Name: "eth0", MAC: macvlan.NewMAC()})
		if err != nil {
			return err
		}
		copy(p.Mac[:], made.MAC)
		return device.Pods.Open(p.Pair.HostIndex)
	})
	p.Do(tb, func() (err error) {
		p.cookie, err = sock.NetnsCookie()
		return err
	})
	n.pods = append(n.pods, p)
	n.Do(tb, func() error {
		for _, a := range []netip.Addr{p.V4, p.V6} {
			n.Routes[netip.PrefixFrom(a, a.BitLen())] = fwd.Route{Kind: fwd.RouteLocal}
			if err := errors.Join(neigh.SetPermanent(p.Pair.HostIndex, a, p.Pair.PodMAC),
				route.Add(route.Route{Prefix: netip.PrefixFrom(a, a.BitLen()), Device: p.Pair.HostIndex})); err != nil {
				return err
			}
		}
		if err := n.D.AttachPod(p.Pair.HostName, p.Pair.HostIndex); err != nil {
			return err
		}
		_, err := n.D.Routes.Sync(n.Routes)
		_, err2 := n.D.Endpoints.Sync(n.Endpoints())
		_, err3 := n.D.Macvlans.Sync(n.macvlans())
		return errors.Join(err, err2, err3)
	})
	p.Do(tb, p.configureMacvlan)
	return p
}

// configureMacvlan sets eth0 up with the pod's addresses, on-link prefixes and a router of the wire.
func (p *Pod) configureMacvlan() error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for prefix, router := range map[netip.Prefix]string{
		netip.PrefixFrom(p.V4, 24): "172.30.0.9", netip.PrefixFrom(p.V6, 64): "fd00:172:30::9",
	} {
		address := &netlink.Addr{IPNet: rtnl.IPNet(prefix)}
		if prefix.Addr().Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return err
		}
		unspecified := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if prefix.Addr().Is6() {
			unspecified = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: rtnl.IPNet(unspecified), Gw: net.ParseIP(router)}); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) macvlans() map[table.Key]table.Pod {
	all := map[table.Key]table.Pod{}
	for _, p := range n.pods {
		if p.macvlan {
			all[table.Key{Parent: n.Uplink.Index, MAC: p.Mac}] = table.Pod{
				Netns: p.cookie, IPv4: p.V4, IPv6: p.V6, Interface: p.Pair.HostIndex, HostMAC: p.Gateway,
			}
		}
	}
	return all
}
