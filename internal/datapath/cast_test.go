package datapath

import (
	"net/netip"

	"github.com/beeline-cni/beeline/internal/device"
)

// member is one of the cast: everybody that a packet of these tests comes from or goes to. The tests stand
// on node A.
type member struct {
	mac    MAC
	v4, v6 netip.Addr
	// gateway is, for a pod, the link-layer address of the host's end of its device.
	gateway MAC
}

func (m member) addr(family int) netip.Addr {
	if family == 4 {
		return m.v4
	}
	return m.v6
}

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func mac(host, end byte) MAC       { return MAC{2, 0xbe, 0xe1, 0, host, end} }

var (
	podA  = member{mac: mac(0xa, 1), gateway: mac(0xa, 2), v4: addr("10.1.1.2"), v6: addr("fd00:1:1::2")}
	podA2 = member{mac: mac(0xa, 3), gateway: mac(0xa, 4), v4: addr("10.1.1.3"), v6: addr("fd00:1:1::3")}
	// ghost has an address of node A's pod range, but no pod has it.
	ghost = member{v4: addr("10.1.1.99"), v6: addr("fd00:1:1::99")}
	// podB is on node B, a neighbour whose link-layer address is known.
	podB = member{v4: addr("10.1.2.2"), v6: addr("fd00:1:2::2")}
	// podC is on node C, a neighbour that is not resolved yet.
	podC = member{v4: addr("10.1.3.2"), v6: addr("fd00:1:3::2")}
	// podFar is on a node behind a router: the host's stack has the route.
	podFar = member{v4: addr("10.1.9.2"), v6: addr("fd00:1:9::2")}
	// podT is on a node behind a tunnel, whose end is of IPv4; podT6 on one whose end is of IPv6.
	podT   = member{v4: addr("10.1.4.2"), v6: addr("fd00:1:4::2")}
	podT6  = member{v4: addr("10.1.5.2"), v6: addr("fd00:1:5::2")}
	nodeT  = member{v4: addr("172.31.0.4"), v6: addr("fd00:172:31::4")}
	nodeA  = member{mac: mac(1, 0), v4: addr("172.30.0.1"), v6: addr("fd00:172:30::1")}
	nodeB  = member{mac: mac(2, 0), v4: addr("172.30.0.2"), v6: addr("fd00:172:30::2")}
	nodeC  = member{mac: mac(3, 0), v4: addr("172.30.0.3"), v6: addr("fd00:172:30::3")}
	world  = member{v4: addr("203.0.113.7"), v6: addr("2001:db8:ffff::7")}
	router = mac(9, 9)
)

// remoteMTU is the MTU of the way to the other nodes, smaller than the pods' 1500.
const remoteMTU = 1400

func routesOfNodeA(uplink, tunnelDevice int) map[netip.Prefix]Route {
	// All but Kind is for RouteRemote only: what else is there must not matter.
	stack := Route{Kind: RouteCluster, Interface: uplink, MTU: 1500, NextHop: nodeB.v4, NextHopMAC: nodeB.mac, UplinkMAC: nodeA.mac}
	routes := map[netip.Prefix]Route{
		prefix("10.1.1.0/24"):           {Kind: RouteLocal},
		prefix("fd00:1:1::/64"):         {Kind: RouteLocal},
		prefix("10.1.9.0/24"):           stack,
		prefix("fd00:1:9::/64"):         stack,
		netip.PrefixFrom(nodeA.v4, 32):  stack,
		netip.PrefixFrom(nodeA.v6, 128): stack,
	}
	remote := func(node member, prefixes ...netip.Prefix) {
		for _, p := range prefixes {
			next := node.v4
			if p.Addr().Is6() {
				next = node.v6
			}
			r := Route{Kind: RouteRemote, Interface: uplink, MTU: remoteMTU, NextHop: next, UplinkMAC: nodeA.mac}
			if node != nodeC {
				r.NextHopMAC = node.mac
			}
			routes[p] = r
		}
	}
	remote(nodeB, prefix("10.1.2.0/24"), prefix("fd00:1:2::/64"), netip.PrefixFrom(nodeB.v4, 32), netip.PrefixFrom(nodeB.v6, 128))
	remote(nodeC, prefix("10.1.3.0/24"), prefix("fd00:1:3::/64"))
	for end, prefixes := range map[netip.Addr][]netip.Prefix{
		nodeT.v4: {prefix("10.1.4.0/24"), prefix("fd00:1:4::/64"), netip.PrefixFrom(nodeT.v4, 32), netip.PrefixFrom(nodeT.v6, 128)},
		nodeT.v6: {prefix("10.1.5.0/24"), prefix("fd00:1:5::/64")},
	} {
		for _, p := range prefixes {
			routes[p] = tunnelRoute(tunnelDevice, end, remoteMTU)
		}
	}
	return routes
}

// tunnelRoute is a route through the VXLAN device to the node with this address.
func tunnelRoute(tunnelDevice int, end netip.Addr, mtu int) Route {
	return Route{Kind: RouteTunnel, Interface: tunnelDevice, MTU: mtu, NextHop: end, NextHopMAC: tunnelMAC, UplinkMAC: tunnelSender}
}

// The MACs of every frame inside a tunnel.
var (
	tunnelMAC    = MAC(device.TunnelMAC)
	tunnelSender = MAC(device.TunnelSenderMAC)
)

// fromPod is the beginning of a packet that podA sends.
func fromPod() packet { return eth(podA.mac, podA.gateway) }

// fromWire is the beginning of a packet that arrives at node A's uplink from node B.
func fromWire() packet { return eth(nodeB.mac, nodeA.mac) }

// toWire is the beginning of a packet that node A's stack sends to the router.
func toWire() packet { return eth(nodeA.mac, router) }

// toPod is the beginning of a packet that node A's stack sends to podA.
func toPod() packet { return eth(podA.gateway, podA.mac) }
