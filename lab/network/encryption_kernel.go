package network

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// What the kernel's own networks have in common: pods by the plugin ptp, routed by the kernel without netfilter, which is
// the least that a user sets up by hand.
var (
	kernelWireGuard = &Reference{
		name:        "kernel-wireguard",
		description: "reference CNI plugin ptp, and a WireGuard device between nodes as set up by hand: pod ranges are allowed IPs and routes; no netfilter",
		plugins:     []string{"ptp", "host-local"}, needs: []requirement{wireGuardDevices}, encryption: WireGuard, up: makeWireGuard,
		plugin: func(lab *testbed.Lab, node *testbed.Node) map[string]any {
			return ptpPlugin(node, wireGuardMTU(lab.MTU))
		},
		facts: func(lab *testbed.Lab) map[string]string {
			return map[string]string{"encryption": fmt.Sprintf("WireGuard, device MTU %d, keys of this run", wireGuardMTU(lab.MTU))}
		},
	}
	kernelIPsec = &Reference{
		name:        "kernel-ipsec",
		description: "reference CNI plugin ptp, and ESP tunnels between nodes as set up by hand: states with AES-128-GCM, and policies for pod ranges; no netfilter",
		plugins:     []string{"ptp", "host-local"}, needs: []requirement{ipsecStates}, encryption: IPsec, up: makeIPsec,
		plugin: func(lab *testbed.Lab, node *testbed.Node) map[string]any { return ptpPlugin(node, ipsecMTU(lab.MTU)) },
		facts: func(*testbed.Lab) map[string]string {
			return map[string]string{"encryption": "ESP tunnels, AES-128-GCM, 16-byte ICV, ESN, replay window 128, keys of this run"}
		},
	}
)

// wireGuardOverhead in bytes: outer IPv4 20, UDP 8, WireGuard's header 16 and tag 16.
const wireGuardOverhead = 60

func wireGuardMTU(wire int) int { return wire - wireGuardOverhead }

// ipsecMTU is the largest packet that fits into ESP on a wire. ESP has an outer IPv4 header of 20 bytes, its own of 8, an
// initialization vector of 8 and a tag of 16; the packet with a trailer of two bytes is padded to four.
func ipsecMTU(wire int) int { return (wire-20-8-8-16)&^3 - 2 }

// makeWireGuard gives every node a key, a device, each other node as its peer, and routes to their pods over the device.
func makeWireGuard(ctx context.Context, lab *testbed.Lab) error {
	keys := map[*testbed.Node]wgtypes.Key{}
	for _, node := range lab.Nodes() {
		key, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			return fmt.Errorf("make key of %s: %w", node.Name, err)
		}
		keys[node] = key
	}
	for _, node := range lab.Nodes() {
		if err := node.EnableForwarding(lab.IPv6); err != nil {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
		key, port := keys[node], kernelWireGuardPort
		config := wgtypes.Config{PrivateKey: &key, ListenPort: &port}
		var ip strings.Builder
		fmt.Fprintf(&ip, "link set wg0 mtu %d up\n", wireGuardMTU(lab.MTU))
		for _, other := range lab.Nodes() {
			if other == node {
				continue
			}
			at := netip.AddrPortFrom(other.Addresses[0].Addr(), kernelWireGuardPort)
			peer := wgtypes.PeerConfig{PublicKey: keys[other].PublicKey(), Endpoint: net.UDPAddrFromAddrPort(at)}
			for _, cidr := range other.PodCIDRs {
				peer.AllowedIPs = append(peer.AllowedIPs, *testbed.IPNet(cidr))
				fmt.Fprintf(&ip, "route add %s dev wg0\n", cidr)
			}
			config.Peers = append(config.Peers, peer)
		}
		if err := configureWireGuard(node, config); err != nil {
			return fmt.Errorf("make WireGuard device of %s: %w", node.Name, err)
		}
		if err := node.Input(ctx, ip.String(), "ip", "-batch", "-"); err != nil {
			return fmt.Errorf("route pods of other nodes on %s: %w", node.Name, err)
		}
	}
	return nil
}

// configureWireGuard makes a node's device.
func configureWireGuard(node *testbed.Node, config wgtypes.Config) error {
	return node.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: "wg0"}}); err != nil {
			return err
		}
		client, err := wgctrl.New()
		if err != nil {
			return err
		}
		defer client.Close()
		return client.ConfigureDevice("wg0", config)
	})
}

// ipsecKeyBytes are those of an AES-128 key with its salt of four bytes (RFC 4106).
const ipsecKeyBytes = 16 + 4

// makeIPsec gives every pair of nodes a state for each direction, with a key of its own, and policies that lead packets
// between their pod ranges through the states.
func makeIPsec(ctx context.Context, lab *testbed.Lab) error {
	if err := routePods(ctx, lab); err != nil {
		return err
	}
	commands := map[*testbed.Node]*strings.Builder{}
	for _, node := range lab.Nodes() {
		commands[node] = &strings.Builder{}
	}
	for _, from := range lab.Nodes() {
		for _, to := range lab.Nodes() {
			if from == to {
				continue
			}
			var key [ipsecKeyBytes]byte
			_, _ = rand.Read(key[:]) // it never fails
			outer := fmt.Sprintf("src %s dst %s proto esp", from.Addresses[0].Addr(), to.Addresses[0].Addr())
			spi := fmt.Sprintf("spi %#x", 0x1000+from.Index<<8+to.Index)
			for _, end := range []*testbed.Node{from, to} {
				fmt.Fprintf(commands[end], "xfrm state add %s %s reqid 1 mode tunnel replay-window 128 flag af-unspec flag esn aead rfc4106(gcm(aes)) 0x%s 128\n",
					outer, spi, hex.EncodeToString(key[:]))
			}
			for i, source := range from.PodCIDRs {
				selector := fmt.Sprintf("src %s dst %s", source, to.PodCIDRs[i])
				fmt.Fprintf(commands[from], "xfrm policy add %s dir out tmpl %s reqid 1 mode tunnel\n", selector, outer)
				for _, dir := range []string{"in", "fwd"} {
					fmt.Fprintf(commands[to], "xfrm policy add %s dir %s tmpl %s reqid 1 mode tunnel\n", selector, dir, outer)
				}
			}
		}
	}
	for node, text := range commands {
		if err := node.Input(ctx, text.String(), "ip", "-batch", "-"); err != nil {
			return fmt.Errorf("make states and policies of %s: %w", node.Name, err)
		}
	}
	return nil
}
