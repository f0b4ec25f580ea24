package netlab

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/macvlan"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/route"
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
		spec := device.PodSpec{Kind: device.Macvlan, ContainerID: id, IfName: "eth0", Netns: p.Path(), Parent: n.Uplink.Index}
		if p.Pair, err = device.Pods.Create(spec); err != nil {
			return err
		}
		copy(p.Gateway[:], p.Pair.HostMAC)
		copy(p.Mac[:], p.Pair.PodMAC)
		return device.Pods.Open(p.Pair.HostIndex)
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
	// On-link prefixes, and a router of the wire.
	cfg := device.PodConfig{
		Addresses: []netip.Prefix{netip.PrefixFrom(p.V4, 32), netip.PrefixFrom(p.V6, 128)},
		Routes: []device.PodRoute{
			{To: netip.PrefixFrom(p.V4, 24).Masked()}, {To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: fixtures.Addr("172.30.0.9")},
			{To: netip.PrefixFrom(p.V6, 64).Masked()}, {To: netip.PrefixFrom(netip.IPv6Unspecified(), 0), Via: fixtures.Addr("fd00:172:30::9")},
		},
	}
	if err := device.Pods.Configure(p.Path(), "eth0", cfg); err != nil {
		tb.Fatal(err)
	}
	return p
}

func (n *Node) macvlans() map[macvlan.Key]macvlan.Pod {
	all := map[macvlan.Key]macvlan.Pod{}
	for _, p := range n.pods {
		if p.macvlan {
			all[macvlan.Key{Parent: n.Uplink.Index, MAC: p.Mac}] = macvlan.Pod{
				Netns: p.Pair.NetnsCookie, IPv4: p.V4, IPv6: p.V6, Interface: p.Pair.HostIndex, HostMAC: p.Gateway,
			}
		}
	}
	return all
}
