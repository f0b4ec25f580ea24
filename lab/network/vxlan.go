package network

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// vxlanHeaders in bytes: outer IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14.
const vxlanHeaders = 50

// overlay is VXLAN without a daemon: the plugin bridge on each node, a kernel VXLAN device between nodes and its tables
// filled once.
var overlay = &Reference{
	name:        "vxlan",
	description: "reference CNI plugin bridge over a kernel VXLAN device with static entries, the flannel way: MTU 50 less than the wire's, masquerade, kube-proxy-like rules as in node+netfilter",
	plugins:     []string{"bridge", "host-local"}, needs: []requirement{bridgeDevices, vxlanDevices}, rules: true,
	up: func(ctx context.Context, lab *testbed.Lab) error {
		for _, node := range lab.Nodes() {
			if err := node.EnableForwarding(lab.IPv6); err != nil {
				return fmt.Errorf("node %s: %w", node.Name, err)
			}
			if err := makeVXLAN(ctx, lab, node); err != nil {
				return fmt.Errorf("node %s: make VXLAN device: %w", node.Name, err)
			}
		}
		return nil
	},
	plugin: func(lab *testbed.Lab, node *testbed.Node) map[string]any {
		return bridgePlugin(node, lab.MTU-vxlanHeaders)
	},
	facts: func(lab *testbed.Lab) map[string]string {
		facts := map[string]string{"tunnel": "VXLAN over IPv4, UDP port 8472, static entries"}
		maps.Copy(facts, bridgeFacts(lab))
		return facts
	},
}

// makeVXLAN gives a node its device, and for every other node a route over it, the neighbour that the route's next hop
// is, and the outer address behind that neighbour. The port is the kernel's old default, which flannel keeps.
func makeVXLAN(ctx context.Context, lab *testbed.Lab, node *testbed.Node) error {
	var entries, ip strings.Builder
	fmt.Fprintf(&ip, "link add vxlan0 address %s mtu %d type vxlan id 1 dev %s local %s dstport 8472 nolearning\n",
		vxlanMAC(node), lab.MTU-vxlanHeaders, testbed.Uplink, node.Addresses[0].Addr())
	for _, cidr := range node.PodCIDRs {
		fmt.Fprintf(&ip, "address add %s dev vxlan0\n", cidr.Addr())
	}
	ip.WriteString("link set vxlan0 up\n")
	for _, peer := range lab.Nodes() {
		if peer == node {
			continue
		}
		mac := vxlanMAC(peer)
		fmt.Fprintf(&entries, "fdb add %s dev vxlan0 dst %s\n", mac, peer.Addresses[0].Addr())
		for _, cidr := range peer.PodCIDRs {
			fmt.Fprintf(&ip, "neighbour add %s lladdr %s dev vxlan0 nud permanent\n", cidr.Addr(), mac)
			fmt.Fprintf(&ip, "route add %s via %s dev vxlan0 onlink\n", cidr, cidr.Addr())
		}
	}
	if err := node.Input(ctx, ip.String(), "ip", "-batch", "-"); err != nil {
		return err
	}
	return node.Input(ctx, entries.String(), "bridge", "-batch", "-")
}

// vxlanMAC is a locally administered address, different for each node.
func vxlanMAC(n *testbed.Node) string { return fmt.Sprintf("02:77:00:00:00:%02x", n.Index) }
