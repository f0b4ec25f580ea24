package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// kernelRoute returns the next hop of Beeline's route to a prefix on the node, invalid for none.
func kernelRoute(n *node, to netip.Prefix) (via netip.Addr, err error) {
	routes, err := beelineRoutes(n)
	for _, r := range routes {
		if r.Dst.String() == to.String() && r.Gw != nil {
			via, _ = netip.AddrFromSlice(r.Gw)
			via = via.Unmap()
		}
	}
	return via, err
}

// waitRoute waits until the node has this next hop for a prefix, or none if via is invalid.
func (c *cluster) waitRoute(n *node, to netip.Prefix, via netip.Addr) {
	c.t.Helper()
	eventually(c.t, func() error {
		got, err := kernelRoute(n, to)
		if err == nil && got != via {
			err = fmt.Errorf("%s reaches %s via %s, want %s", n.Name, to, got, via)
		}
		return err
	})
}

// TestNodesComeAndGo removes and adds a Node object: the node's pods are reachable exactly while it exists.
func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true, Nodes: 3})
	pods := c.addPods()
	third := c.addPod(c.nodes[2], "third")
	gone := c.nodes[1]
	if err := os.Remove(c.manifestFile(gone)); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range gone.PodCIDRs {
		c.waitRoute(c.nodes[0], prefix, netip.Addr{})
	}
	c.waitStatus(c.nodes[0], func(s *agentapi.Status) error {
		if len(s.Nodes) != 1 || s.Nodes[0].Name != c.nodes[2].Name {
			return fmt.Errorf("other nodes: %+v", s.Nodes)
		}
		return nil
	})
	if _, err := transfer(pods.a.Netns, pods.far.Netns, pods.far.Addresses[0]); err == nil {
		t.Error("pods of a removed node are reachable")
	}
	if err := c.reach(pods.a, third); err != nil {
		t.Errorf("to the other node: %v", err)
	}
	if err := c.reach(pods.a, pods.b); err != nil {
		t.Errorf("on one node: %v", err)
	}

	c.writeNode(gone)
	for i, prefix := range gone.PodCIDRs {
		c.waitRoute(c.nodes[0], prefix, gone.Addresses[i].Addr())
	}
	c.waitReady(gone)
	for _, pair := range [][2]*testbed.Pod{{pods.a, pods.far}, {pods.far, third}} {
		if err := c.reach(pair[0], pair[1]); err != nil {
			t.Errorf("to the added node: %v", err)
		}
	}
}

// TestNodeChangesAddress moves a node to another address of its link under traffic: nothing is lost.
func TestNodeChangesAddress(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	pods := c.addPods()
	traffic := c.startTraffic([2]*testbed.Pod{pods.a, pods.far})
	moving := c.nodes[1]
	moved := []netip.Prefix{netip.MustParsePrefix("192.168.77.102/24"), netip.MustParsePrefix("fd77::102/64")}
	for i, address := range moved {
		changeLink(t, moving.Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error {
			return h.AddrAdd(l, &netlink.Addr{IPNet: testbed.IPNet(address)})
		})
		moving.object.Status.Addresses[i].Address = address.Addr().String()
	}
	c.writeNode(moving)
	for i, prefix := range moving.PodCIDRs {
		c.waitRoute(c.nodes[0], prefix, moved[i].Addr())
	}
	traffic.waitProgress()
	traffic.finish()
	c.waitNoProblem(c.nodes[0])
	c.waitNoProblem(moving)
}

// TestBrokenManifest breaks a manifest while the agents run: the status has file, line and reason, the last valid state
// stays active, and changes of other files are read.
func TestBrokenManifest(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{Nodes: 3})
	pods := c.addPods()
	broken, other := c.nodes[1], c.nodes[2]
	c.writeManifest(broken.Name+".yaml", []byte(strings.Join([]string{
		"apiVersion: v1", "kind: Node", "metadata: {name: n2}", "spec:", "  podCIDRs:", "  - 10.77.2.0/33", ""}, "\n")))
	c.waitProblem(c.nodes[0], "n2.yaml:6:", "10.77.2.0/33")
	if err := os.Remove(c.manifestFile(other)); err != nil {
		t.Fatal(err)
	}
	c.waitRoute(c.nodes[0], other.PodCIDRs[0], netip.Addr{})
	if err := c.reach(pods.a, pods.far); err != nil {
		t.Errorf("with a broken manifest: %v", err)
	}
	if err := c.reach(pods.far, c.addPod(c.nodes[0], "late")); err != nil {
		t.Errorf("with a broken manifest: %v", err)
	}
	if text := c.command(c.nodes[0], "status"); !containsAll(text, []string{"is ready", "problem:", "n2.yaml:6:"}) {
		t.Errorf("beeline status prints\n%s", text)
	}

	c.writeNode(broken)
	c.waitNoProblem(c.nodes[0])
	if err := c.reach(pods.a, pods.far); err != nil {
		t.Error(err)
	}
}

// TestRestartOnBrokenManifests restarts an agent while a node's manifest is broken, and while there are no manifests, as
// with a directory that is not mounted. Traffic continues, and the agent waits for its own Node object before it adds
// pods. The broken file has a kind: without one it may be a NetworkPolicy, and added pods would be denied all traffic.
func TestRestartOnBrokenManifests(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	pods := c.addPods()
	n, far := c.nodes[0], c.nodes[1]
	traffic := c.startTraffic([2]*testbed.Pod{pods.a, pods.far})

	c.writeManifest(far.Name+".yaml", []byte("kind: Node\nmetadata: ["))
	c.restart(n, current(t))
	c.waitReady(n)
	c.waitProblem(n, "Node objects are missing")
	traffic.waitProgress()
	if err := c.reach(pods.far, c.addPod(n, "late")); err != nil {
		t.Errorf("a pod added with a broken manifest of another node: %v", err)
	}

	c.kill(n)
	for _, node := range c.nodes {
		if err := os.Remove(c.manifestFile(node)); err != nil {
			t.Fatal(err)
		}
	}
	c.start(n, current(t))
	c.waitProblem(n, "is not among the 0 Node objects")
	traffic.waitProgress()
	if c.status(n).Ready {
		t.Error("the agent is ready without its own Node object")
	}
	for i, prefix := range far.PodCIDRs {
		c.waitRoute(n, prefix, far.Addresses[i].Addr())
	}

	c.writeNode(n)
	c.writeNode(far)
	c.waitReady(n)
	c.waitNoProblem(n)
	traffic.waitProgress()
	traffic.finish()
}

// TestOwnRangeChanges gives a node another pod CIDR: its pods keep their addresses and their connections, a problem names
// them, and new pods get addresses of the new CIDR.
func TestOwnRangeChanges(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	pods := c.addPods()
	traffic := c.startTraffic([2]*testbed.Pod{pods.a, pods.b})
	range2 := netip.MustParsePrefix("10.77.101.0/24")
	n.object.Spec.PodCIDRs = []string{range2.String()}
	c.writeNode(n)
	c.waitProblem(n, "default/a", pods.a.Addresses[0].String(), "make the pod anew")
	c.waitRoute(c.nodes[1], range2, n.Addresses[0].Addr())

	late := c.addPod(n, "late")
	if !range2.Contains(late.Addresses[0]) {
		t.Errorf("the new pod has %s, want an address of %s", late.Addresses[0], range2)
	}
	for _, pair := range [][2]*testbed.Pod{{late, pods.far}, {pods.far, late}, {late, pods.a}, {pods.a, late}} {
		if err := c.reach(pair[0], pair[1]); err != nil {
			t.Error(err)
		}
	}
	c.restart(n, current(t))
	traffic.waitProgress()
	traffic.finish()
	c.delPod(n, pods.a)
	c.delPod(n, pods.b)
	c.waitNoProblem(n)
}
