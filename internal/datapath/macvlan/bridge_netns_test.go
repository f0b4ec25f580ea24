package macvlan_test

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// A pod with NET_ADMIN sets its device to mode bridge and adds another one on the parent, by which frames to its own MAC reach the ingress of
// the parent, as those of the wire do. Neither a neighbour nor the node believes them.
func TestMacvlanBridgeMode(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true}})
	attacker, victim := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
	router4, router6 := n.ExternalOnSwitch(4), n.ExternalOnSwitch(6)
	forged, second := fwd.MAC{2, 9, 9, 9, 9, 9}, fwd.MAC{2, 8, 8, 8, 8, 8}
	attacker.Do(t, func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		if err := netlink.LinkModify(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "eth0", Index: eth0.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex, attrs.HardwareAddr = "second", eth0.Attrs().Index, net.HardwareAddr(second[:])
		link := &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	mac := func(where netlab.Netns, of net.IP) (found net.HardwareAddr) {
		where.Do(t, func() error {
			all, err := netlink.NeighList(0, 0)
			for _, entry := range all {
				if entry.IP.Equal(of) {
					found = entry.HardwareAddr
				}
			}
			return err
		})
		return found
	}
	netlab.Carries(t, victim.Netns, *n.External, victim.V4, router4)
	netlab.Carries(t, victim.Netns, *n.External, victim.V6, router6)
	solicitation := func(to fixtures.Member) fixtures.Packet {
		header := append(make([]byte, 8), to.V6.AsSlice()...)
		header[0] = 135
		header = append(append(header, 1, 1), forged[:]...)
		return fixtures.Eth(second, attacker.Mac).Ipv6(router6, to.V6).Ttl(255).Raw(fixtures.ProtoICMPv6, header)
	}
	for _, target := range []struct {
		name string
		netlab.Netns
		fixtures.Member
	}{{"neighbour", victim.Netns, victim.Member}, {"node", n.A.Netns, n.A.Member}} {
		attacker.Send(t, "second", arpFrame(second, attacker.Mac, 1, forged, router4, target.V4).Bytes(),
			arpFrame(second, attacker.Mac, 2, forged, router4, target.V4).Bytes(), solicitation(target.Member).Bytes())
		time.Sleep(200 * time.Millisecond)
		for _, router := range []net.IP{router4.AsSlice(), router6.AsSlice()} {
			t.Log(target.name, router, mac(target.Netns, router))
			if got := mac(target.Netns, router); got.String() == net.HardwareAddr(forged[:]).String() {
				t.Errorf("the %s believes that %s is at %s", target.name, router, got)
			}
		}
	}
}
