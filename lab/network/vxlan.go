package network

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	vxlanDevice = "vxlan0"
	vxlanID     = 1
	vxlanPort   = 8472 // the kernel's old default, which flannel keeps
	// vxlanHeaders in bytes: outer IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14.
	vxlanHeaders = 50
)

// overlay is VXLAN without a daemon: the plugin bridge on each node, a kernel VXLAN device between nodes and its tables
// filled once.
var overlay = &Reference{
	name:        "vxlan",
	description: "reference CNI plugin bridge over a kernel VXLAN device with static entries, the flannel way: MTU 50 less than the wire's, masquerade, kube-proxy-like rules as in node+netfilter",
	plugins:     []string{"bridge", "host-local"}, lacks: []func() string{bridgeUnsupported, vxlanUnsupported}, rules: true,
	up: func(lab *testbed.Lab) error {
		if err := enableForwarding(lab); err != nil {
			return err
		}
		for _, node := range lab.Nodes() {
			err := node.Netlink(func(h *netlink.Handle) error { return makeVXLAN(h, lab, node) })
			if err != nil {
				return fmt.Errorf("node %s: %w", node.Name, err)
			}
		}
		return nil
	},
	plugin: func(lab *testbed.Lab, node *testbed.Node) map[string]any {
		return bridgePlugin(node, lab.MTU-vxlanHeaders)
	},
	facts: func(lab *testbed.Lab) map[string]string {
		facts := map[string]string{"tunnel": "VXLAN over IPv4, UDP port " + strconv.Itoa(vxlanPort) + ", static entries"}
		maps.Copy(facts, bridgeFacts(lab))
		return facts
	},
}

// makeVXLAN returns the node its device, and for every other node a route over it, the neighbour that the
// route's next hop is, and the outer address behind that neighbour.
func makeVXLAN(h *netlink.Handle, lab *testbed.Lab, node *testbed.Node) error {
	uplink, err := h.LinkByName(testbed.Uplink)
	if err != nil {
		return fmt.Errorf("find %s: %w", testbed.Uplink, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = vxlanDevice, lab.MTU-vxlanHeaders, vxlanMAC(node)
	device := &netlink.Vxlan{
		LinkAttrs: attrs, VxlanId: vxlanID, VtepDevIndex: uplink.Attrs().Index,
		SrcAddr: node.Addresses[0].Addr().AsSlice(), Port: vxlanPort,
	}
	if err := h.LinkAdd(device); err != nil {
		return fmt.Errorf("make %s: %w", vxlanDevice, err)
	}
	for _, cidr := range node.PodCIDRs {
		own := netip.PrefixFrom(cidr.Addr(), cidr.Addr().BitLen())
		if err := h.AddrAdd(device, &netlink.Addr{IPNet: testbed.IPNet(own)}); err != nil {
			return fmt.Errorf("add address %s: %w", own, err)
		}
	}
	if err := h.LinkSetUp(device); err != nil {
		return fmt.Errorf("set %s up: %w", vxlanDevice, err)
	}
	for _, other := range lab.Nodes() {
		if other == node {
			continue
		}
		if err := addVXLANPeer(h, device.Attrs().Index, other); err != nil {
			return fmt.Errorf("peer %s: %w", other.Name, err)
		}
	}
	return nil
}

func addVXLANPeer(h *netlink.Handle, device int, peer *testbed.Node) error {
	mac := vxlanMAC(peer)
	outer := &netlink.Neigh{
		LinkIndex: device, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT | netlink.NUD_NOARP, Flags: netlink.NTF_SELF,
		IP: peer.Addresses[0].Addr().AsSlice(), HardwareAddr: mac,
	}
	if err := h.NeighSet(outer); err != nil {
		return fmt.Errorf("add forwarding entry: %w", err)
	}
	for _, cidr := range peer.PodCIDRs {
		via := cidr.Addr()
		neigh := &netlink.Neigh{LinkIndex: device, State: netlink.NUD_PERMANENT, IP: via.AsSlice(), HardwareAddr: mac}
		if err := h.NeighSet(neigh); err != nil {
			return fmt.Errorf("add neighbour %s: %w", via, err)
		}
		route := &netlink.Route{
			LinkIndex: device, Dst: testbed.IPNet(cidr), Gw: via.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
		}
		if err := h.RouteAdd(route); err != nil {
			return fmt.Errorf("add route to %s: %w", cidr, err)
		}
	}
	return nil
}

// vxlanMAC is a locally administered address, different for each node.
func vxlanMAC(n *testbed.Node) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x77, 0, 0, 0, byte(n.Index)}
}
