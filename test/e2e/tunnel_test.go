package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// tunnelDevice is the VXLAN device of a node.
const tunnelDevice = "beeline-vxlan"

// twoSubnets has three nodes, the first two in one subnet and the third in another.
var twoSubnets = testbed.Options{IPv6: true, Nodes: 3, Subnets: 2}

// wantPathsTo checks the paths and MTUs to the other nodes in the status of the node's agent.
func (c *cluster) wantPathsTo(n *node, want map[string]string) {
	c.t.Helper()
	got := map[string]string{}
	for _, other := range c.status(n).Nodes {
		got[other.Name] = fmt.Sprintf("%s %d", other.Path, other.MTU)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		c.t.Errorf("paths of %s are %v, want %v", n.Name, got, want)
	}
}

// wantNoDrops fails the test if a datapath dropped a packet.
func (c *cluster) wantNoDrops() {
	c.t.Helper()
	c.wantNoDropsOn(c.nodes)
}

func (c *cluster) wantNoDropsOn(nodes []*node) {
	c.t.Helper()
	for _, n := range nodes {
		all, err := n.api().Drops(c.t.Context())
		if err != nil {
			c.t.Fatal(err)
		}
		for _, d := range all {
			if d.Packets > 0 {
				c.t.Errorf("%s dropped %d packets in %s: %s", n.Name, d.Packets, d.Program, d.Reason)
			}
		}
	}
}

// onePodEach makes a pod on every node and a second one on the first.
func (c *cluster) onePodEach() (pods []*testbed.Pod) {
	c.t.Helper()
	for i, n := range c.nodes {
		pods = append(pods, c.addPod(n, fmt.Sprintf("pod-%d", i)))
	}
	return append(pods, c.addPod(c.nodes[0], "neighbour"))
}

// TestEverybodyReachesEverybodyThroughTunnels connects all pairs of pods, and of nodes and pods in both directions, each
// with its own address. Nodes of one subnet use no tunnel with --tunnel=auto. The router between the subnets has no
// routes to pods.
func TestEverybodyReachesEverybodyThroughTunnels(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		for _, tunnel := range []string{"auto", "vxlan"} {
			t.Run(routing+"/"+tunnel, func(t *testing.T) {
				c := up(t, twoSubnets, "--routing", routing, "--tunnel", tunnel)
				for _, n := range c.nodes {
					c.sysctl(n, "net/ipv4/conf/all/rp_filter", "1") // paths are symmetric
				}
				c.reachAll(c.onePodEach(), 2)
				c.wantNoDrops()
				paths := map[string]string{"n2": "direct 1500", "n3": "vxlan 1450"}
				if tunnel == "vxlan" {
					paths["n2"] = "vxlan 1450"
				}
				c.wantPathsTo(c.nodes[0], paths)
			})
		}
	}
}

// TestTunnelsOverIPv6 has nodes with IPv6 addresses only: pods of both families use tunnels over IPv6, whose MTU is
// smaller.
func TestTunnelsOverIPv6(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			c := newCluster(t, twoSubnets)
			for _, n := range c.nodes {
				n.object.Status.Addresses = n.object.Status.Addresses[1:]
				c.writeNode(n)
				c.start(n, current(t), "--routing", routing)
			}
			for _, n := range c.nodes {
				c.waitReady(n)
			}
			pods := c.onePodEach()
			for _, from := range pods {
				for _, to := range pods {
					if from == to {
						continue
					}
					if err := c.reach(from, to); err != nil {
						t.Error(err)
					}
				}
			}
			for _, address := range pods[2].Addresses {
				c.waitPathMTU(pods[0], address, 1430)
			}
			c.wantNoDrops()
			// Nodes of one subnet have no IPv4 next hops.
			c.wantPathsTo(c.nodes[0], map[string]string{"n2": "vxlan, direct 1430", "n3": "vxlan 1430"})
		})
	}
}

// TestTunnelPathMTU checks that senders learn the MTU of a tunnel in both directions, while other paths keep the uplink's
// MTU. If all nodes are behind tunnels, pods have the tunnel's MTU.
func TestTunnelPathMTU(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			c := up(t, twoSubnets, "--routing", routing)
			pods := c.onePodEach()
			c.waitMTU(pods[0], 1500)
			for i := range pods[0].Addresses {
				c.waitPathMTU(pods[0], pods[2].Addresses[i], 1450)
				c.waitPathMTU(pods[2], pods[0].Addresses[i], 1450)
				c.waitPathMTU(pods[0], pods[1].Addresses[i], 1500)
			}
			streams := c.startStreams([2]*testbed.Pod{pods[0], pods[2]}, [2]*testbed.Pod{pods[2], pods[1]})
			for _, n := range c.nodes {
				setUplinkMTU(t, n, 1400)
			}
			for _, pod := range pods {
				c.waitMTU(pod, 1400)
			}
			streams.waitProgress()
			for _, address := range pods[2].Addresses {
				c.waitPathMTU(pods[0], address, 1350)
			}
			for _, n := range c.nodes {
				c.restart(n, current(t), "--routing", routing, "--tunnel", "vxlan")
			}
			for _, pod := range pods {
				c.waitMTU(pod, 1350)
			}
			streams.finish()
		})
	}
}

// TestTunnelOutlivesAgent kills and restarts the agents of both ends under traffic through a tunnel: nothing is lost, and
// the device stays the same.
func TestTunnelOutlivesAgent(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			c := up(t, testbed.Options{IPv6: true, Subnets: 2}, "--routing", routing)
			p := c.addPods()
			traffic := c.startTraffic([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{asPod(c.nodes[0], p.far), p.far})
			before := c.tunnelIndex(c.nodes[0])
			for _, n := range c.nodes {
				c.kill(n)
			}
			traffic.waitProgress()
			for _, n := range c.nodes {
				c.start(n, newer(t), "--routing", routing)
				c.waitReady(n)
			}
			if after := c.tunnelIndex(c.nodes[0]); after != before {
				t.Errorf("the tunnel device has index %d, before %d", after, before)
			}
			traffic.finish()
		})
	}
}

// TestTunnelRestored removes parts of the tunnel under traffic: the agent restores each part, and connections continue.
func TestTunnelRestored(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true, Subnets: 2}, "--routing", "kernel")
	n, p := c.nodes[0], c.addPods()
	streams := c.startStreams([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.b})
	address := c.nodes[0].Addresses[0].Addr().String()
	for _, damage := range [][]string{
		{"link", "delete", tunnelDevice},
		{"link", "set", tunnelDevice, "down"},
		{"link", "set", tunnelDevice, "address", "02:00:00:00:00:09"},
		{"address", "delete", address + "/32", "dev", tunnelDevice},
		{"rule", "delete", "priority", "190"},
		{"-6", "rule", "delete", "priority", "190"},
		{"route", "flush", "table", "190"},
		{"route", "flush", "dev", tunnelDevice},
		{"-6", "route", "flush", "dev", tunnelDevice},
	} {
		before := c.tunnelState(n)
		if output, err := n.Output(t.Context(), "ip", damage...); err != nil {
			t.Fatalf("%v: %v: %s", damage, err, output)
		}
		eventually(t, func() error {
			if after := c.tunnelState(n); after != before {
				return fmt.Errorf("after ip %s:\n%s\nbefore:\n%s", strings.Join(damage, " "), after, before)
			}
			return nil
		})
		streams.waitProgress()
		for _, pair := range [][2]*testbed.Pod{{p.a, p.far}, {p.far, p.a}, {withoutSource(p.a), asPod(c.nodes[1], p.a)}} {
			if err := c.reach(pair[0], pair[1]); err != nil {
				t.Errorf("after ip %s: %v", strings.Join(damage, " "), err)
			}
		}
	}
	streams.finish()
}

// tunnelState is the kernel's state of the tunnel, without indexes.
func (c *cluster) tunnelState(n *node) string {
	c.t.Helper()
	var all []string
	for _, what := range [][]string{
		{"-o", "-d", "link", "show", tunnelDevice}, {"-o", "address", "show", tunnelDevice, "scope", "global"},
		{"rule"}, {"-6", "rule"}, {"route"}, {"-6", "route", "show", "proto", "190"}, {"route", "show", "table", "190"}, {"-6", "route", "show", "table", "190"},
	} {
		output, err := n.Output(c.t.Context(), "ip", what...)
		if err != nil {
			output = []byte(err.Error())
		}
		lines := strings.Split(string(output), "\n")
		for i, line := range lines {
			if _, after, ok := strings.Cut(line, ": "); ok && strings.Contains(line, tunnelDevice) {
				lines[i] = strings.TrimSpace(after)
			}
		}
		slices.Sort(lines)
		all = append(all, lines...)
	}
	return strings.Join(all, "\n")
}

func (c *cluster) tunnelIndex(n *node) (index int) {
	c.t.Helper()
	err := n.Netlink(func(h *netlink.Handle) error {
		link, err := h.LinkByName(tunnelDevice)
		if err == nil {
			index = link.Attrs().Index
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return index
}

// TestTunnelPortTaken has a VXLAN device of another network on the port: a problem names it and the nodes behind the
// tunnel, other paths work, and after the device is deleted the agent makes the tunnel.
func TestTunnelPortTaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t, twoSubnets)
	n := c.nodes[0]
	for _, command := range [][]string{
		{"link", "add", "flannel.1", "type", "vxlan", "id", "1", "dstport", "4789"}, {"link", "set", "flannel.1", "up"},
	} {
		if output, err := n.Output(t.Context(), "ip", command...); err != nil {
			t.Fatalf("%v: %v: %s", command, err, output)
		}
	}
	for _, n := range c.nodes {
		c.start(n, current(t))
	}
	for _, n := range c.nodes {
		c.waitReady(n)
	}
	pods := c.onePodEach()
	c.waitProblem(n, `"n3"`, "10.77.3.0/24", "cannot be reached", "4789", "flannel.1")
	if err := errors.Join(c.reach(pods[0], pods[1]), c.reach(pods[1], pods[0]), c.reach(pods[1], pods[2])); err != nil {
		t.Error(err)
	}
	changeLink(t, n.Netns, "flannel.1", (*netlink.Handle).LinkDel)
	c.waitNoProblem(n)
	if err := errors.Join(c.reach(pods[0], pods[2]), c.reach(pods[2], pods[0])); err != nil {
		t.Error(err)
	}
}

// TestTunnelForPodsThroughStack has a pod whose packets go through the kernel stack: it reaches pods and nodes behind the
// tunnel with its own address.
func TestTunnelForPodsThroughStack(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true, Subnets: 2})
	n := c.nodes[0]
	own := pluginConf(n)
	own["routing"] = "kernel"
	pod := c.newPod(n, "stack")
	if _, err := c.networkOf(n, current(t), "1.1.0", own).add(t.Context(), pod, runtimeConf(pod)); err != nil {
		t.Fatal(err)
	}
	c.reachAll([]*testbed.Pod{pod, c.addPod(c.nodes[1], "far")}, 2)
	c.wantNoDrops()
}

// TestNodeMovesBetweenSubnets gives a node an address in another subnet, and back: meanwhile its pods are reached through
// a tunnel. The agent removes the tunnel when no node needs it.
func TestNodeMovesBetweenSubnets(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n, p := c.nodes[0], c.addPods()
	onLink := c.nodes[1].object.Status.Addresses
	move := func(addresses []corev1.NodeAddress, path string, tunnels int) {
		t.Helper()
		c.nodes[1].object.Status.Addresses = addresses
		c.writeNode(c.nodes[1])
		c.waitStatus(n, func(s *agentapi.Status) error {
			if s.Nodes[0].Path != path {
				return fmt.Errorf("path to node n2 is %s, want %s", s.Nodes[0].Path, path)
			}
			return nil
		})
		eventually(t, func() error {
			links, err := n.Output(t.Context(), "ip", "-o", "link", "show", "type", "vxlan")
			if got := strings.Count(string(links), tunnelDevice); err != nil || got != tunnels {
				return errors.Join(err, fmt.Errorf("%d tunnel devices, want %d", got, tunnels))
			}
			return nil
		})
	}
	move([]corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "198.51.100.2"}}, agentapi.NodePathVXLAN, 1)
	move(onLink, agentapi.NodePathDirect, 0)
	if err := errors.Join(c.reach(p.a, p.far), c.reach(p.far, p.a)); err != nil {
		t.Error(err)
	}
}

// sysctl sets a kernel setting of a node.
func (c *cluster) sysctl(n *node, name, value string) {
	c.t.Helper()
	if err := n.WriteSysctl(name, value); err != nil {
		c.t.Fatal(err)
	}
}
