package fwd_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// sendVXLAN sends a frame, as the cluster's VXLAN, from one address of a place to another.
func sendVXLAN(t *testing.T, from netlab.Netns, source, to netip.Addr, frame []byte) {
	t.Helper()
	from.Do(t, func() error {
		var local *net.UDPAddr
		if source.IsValid() {
			local = &net.UDPAddr{IP: source.AsSlice()}
		}
		c, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, fixtures.VxlanPort)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(vxlanPacket(1, frame))
		return err
	})
}

// A node brings through its tunnel what is its own, to this node's InternalIPs, and nothing else. All else is dropped and counted.
func TestTunnelBringsWhatIsThePeers(t *testing.T) {
	for _, routing := range []bool{true, false} {
		for _, ipv6 := range []bool{false, true} {
			cfg := config.Datapath{EBPFRouting: routing, Masquerade: true}
			t.Run(fmt.Sprintf("%s/over IPv6 %t", fixtures.CfgName(cfg), ipv6), func(t *testing.T) {
				t.Parallel()
				n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg, Tunnel: true, TunnelIPv6: ipv6})
				second, third := fixtures.Addr("172.30.0.77"), fixtures.Addr("172.30.0.78")
				if ipv6 {
					second, third = fixtures.Addr("fd00:172:30::77"), fixtures.Addr("fd00:172:30::78")
				}
				// Another address of this node, which is no InternalIP; one of the other node, which is; and a third node.
				hold(n.A, t, second)
				hold(n.B, t, third)
				others := fixtures.TunnelRoute(n.A.TunnelIndex, fixtures.NodeT.V4, 1450)
				for _, p := range []netip.Prefix{netlab.RangeOf(fixtures.PodT.V4), netlab.RangeOf(fixtures.PodT.V6), netip.PrefixFrom(fixtures.NodeT.V4, 32), netip.PrefixFrom(fixtures.NodeT.V6, 128)} {
					n.A.Routes[p] = others
				}
				remote := fwd.Route{Kind: fwd.RouteRemote, Interface: n.A.Uplink.Index, MTU: 1500, NextHop: fixtures.NodeC.V4, UplinkMAC: fixtures.NodeA.Mac}
				n.A.Routes[netlab.RangeOf(fixtures.PodC.V4)], n.A.Routes[netlab.RangeOf(fixtures.PodC.V6)] = remote, remote
				n.A.Routes[netip.PrefixFrom(third, third.BitLen())] = n.A.Routes[netlab.RangeOf(fixtures.PodB.V4)]
				if _, err := n.A.D.Routes.Sync(n.A.Routes); err != nil {
					t.Fatal(err)
				}
				end := n.A.End(ipv6)
				for _, family := range fixtures.Families {
					server := n.A1.ListenUDP(t, n.A1.Addr(family))
					frame := func(source netip.Addr, text string) []byte {
						return fixtures.Eth(fixtures.TunnelSender, fixtures.TunnelMAC).Ip(source, n.A1.Addr(family)).Udp(9, netlab.EchoPort).Payload(text).Bytes()
					}
					before := n.A.Dropped(t)
					takes := func(what string, source, from, to netip.Addr) {
						t.Helper()
						sendVXLAN(t, n.B.Netns, from, to, frame(source, what))
						if err := netlab.Expect(server, []byte(what)); err != nil {
							t.Errorf("%s: %v", what, err)
						}
					}
					takes("from a pod of the node", n.B1.Addr(family), netip.Addr{}, end)
					takes("from the node", n.B.Addr(family), netip.Addr{}, end)
					takes("from another address of the node", n.B1.Addr(family), third, end)
					forged := []netip.Addr{
						n.A2.Addr(family), n.A.Addr(family), fixtures.NoPod.Addr(family), fixtures.PodT.Addr(family), fixtures.NodeT.Addr(family), fixtures.PodC.Addr(family), fixtures.External.Addr(family),
					}
					for _, source := range forged {
						sendVXLAN(t, n.B.Netns, netip.Addr{}, end, frame(source, "forged"))
					}
					// Also behind the same addresses inside, which have been decided about.
					sendVXLAN(t, n.B.Netns, netip.Addr{}, second, frame(n.B1.Addr(family), "to another address"))
					before["from_tunnel invalid_source"] += uint64(len(forged))
					before["from_tunnel tunnel_port"]++
					n.AwaitDropped(t, n.A, before)
					takes("and on", n.B1.Addr(family), netip.Addr{}, end)
					netlab.ExpectNothing(t, server)
				}
			})
		}
	}
}

// hold gives a node one more address on its uplink.
func hold(n *netlab.Node, t *testing.T, a netip.Addr) {
	t.Helper()
	n.Do(t, func() error {
		link, err := netlink.LinkByIndex(n.Uplink.Index)
		if err != nil {
			return err
		}
		length := 24
		if a.Is6() {
			length = 64
		}
		return netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(length, a.BitLen())}, Flags: unix.IFA_F_NODAD})
	})
}
