package datapath

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// sendVXLAN sends a frame, as the cluster's VXLAN, from one address of a place to another.
func sendVXLAN(t *testing.T, from place, source, to netip.Addr, frame []byte) {
	t.Helper()
	from.do(t, func() error {
		var local *net.UDPAddr
		if source.IsValid() {
			local = &net.UDPAddr{IP: source.AsSlice()}
		}
		c, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, vxlanPort)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(vxlan(1, frame))
		return err
	})
}

// A node brings through its tunnel what is its own, to this node's InternalIPs, and nothing else. All else is dropped and counted.
func TestTunnelBringsWhatIsThePeers(t *testing.T) {
	for _, routing := range []bool{true, false} {
		for _, ipv6 := range []bool{false, true} {
			cfg := Config{EBPFRouting: routing, Masquerade: true}
			t.Run(fmt.Sprintf("%s/over IPv6 %t", cfgName(cfg), ipv6), func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t, options{cfg: cfg, tunnel: true, tunnelIPv6: ipv6})
				second, third := addr("172.30.0.77"), addr("172.30.0.78")
				if ipv6 {
					second, third = addr("fd00:172:30::77"), addr("fd00:172:30::78")
				}
				// Another address of this node, which is no InternalIP; one of the other node, which is; and a third node.
				n.a.hold(t, second)
				n.b.hold(t, third)
				others := tunnelRoute(n.a.tunnelIndex, nodeT.v4, 1450)
				for _, p := range []netip.Prefix{rangeOf(podT.v4), rangeOf(podT.v6), netip.PrefixFrom(nodeT.v4, 32), netip.PrefixFrom(nodeT.v6, 128)} {
					n.a.routes[p] = others
				}
				remote := Route{Kind: RouteRemote, Interface: n.a.uplink.Index, MTU: 1500, NextHop: nodeC.v4, UplinkMAC: nodeA.mac}
				n.a.routes[rangeOf(podC.v4)], n.a.routes[rangeOf(podC.v6)] = remote, remote
				n.a.routes[netip.PrefixFrom(third, third.BitLen())] = n.a.routes[rangeOf(podB.v4)]
				if _, err := n.a.d.Routes.Sync(n.a.routes); err != nil {
					t.Fatal(err)
				}
				end := n.a.end(ipv6)
				for _, family := range families {
					server := n.a1.listenUDP(t, n.a1.addr(family))
					frame := func(source netip.Addr, text string) []byte {
						return eth(tunnelSender, tunnelMAC).ip(source, n.a1.addr(family)).udp(9, echoPort).payload(text).bytes()
					}
					before := n.a.dropped(t)
					takes := func(what string, source, from, to netip.Addr) {
						t.Helper()
						sendVXLAN(t, n.b.place, from, to, frame(source, what))
						if err := expect(server, []byte(what)); err != nil {
							t.Errorf("%s: %v", what, err)
						}
					}
					takes("from a pod of the node", n.b1.addr(family), netip.Addr{}, end)
					takes("from the node", n.b.addr(family), netip.Addr{}, end)
					takes("from another address of the node", n.b1.addr(family), third, end)
					forged := []netip.Addr{
						n.a2.addr(family), n.a.addr(family), ghost.addr(family), podT.addr(family), nodeT.addr(family), podC.addr(family), world.addr(family),
					}
					for _, source := range forged {
						sendVXLAN(t, n.b.place, netip.Addr{}, end, frame(source, "forged"))
					}
					// Also behind the same addresses inside, which have been decided about.
					sendVXLAN(t, n.b.place, netip.Addr{}, second, frame(n.b1.addr(family), "to another address"))
					before["from_tunnel invalid_source"] += uint64(len(forged))
					before["from_tunnel tunnel_port"]++
					n.awaitDropped(t, n.a, before)
					takes("and on", n.b1.addr(family), netip.Addr{}, end)
					expectNothing(t, server)
				}
			})
		}
	}
}

// hold gives a node one more address on its uplink.
func (n *node) hold(t *testing.T, a netip.Addr) {
	t.Helper()
	n.do(t, func() error {
		link, err := netlink.LinkByIndex(n.uplink.Index)
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
