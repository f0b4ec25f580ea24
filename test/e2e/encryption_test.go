package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/wireguard"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// TestEncryption connects all pairs of pods and of nodes and pods, in one subnet and through a router, while agents
// restart and nodes get other addresses of pods: the wire sees no plaintext of a pod.
func TestEncryption(t *testing.T) {
	t.Parallel()
	for _, k := range []struct {
		mode    netlab.Encryption
		routing string
	}{{netlab.IPsec, "ebpf"}, {netlab.IPsec, "kernel"}, {netlab.WireGuard, "ebpf"}, {netlab.WireGuard, "kernel"}} {
		mode, routing := k.mode, k.routing
		t.Run(mode.Name+" "+routing, func(t *testing.T) {
			c := upEncrypted(t, mode, twoSubnets, "--routing", routing)
			w := c.tapWire()
			for _, n := range c.nodes {
				c.sysctl(n, "net/ipv4/conf/all/rp_filter", "0")
			}
			pods := c.onePodEach()
			c.reachAll(pods, 2)
			c.wantPathsTo(c.nodes[0], map[string]string{"n2": fmt.Sprint(mode.Name, " ", mode.MTU), "n3": fmt.Sprint(mode.Name, " ", mode.MTU)})
			for _, pod := range pods {
				c.waitMTU(pod, mode.MTU)
			}
			c.wantNoDrops()
			streams := c.startStreams([2]*testbed.Pod{pods[0], pods[1]}, [2]*testbed.Pod{pods[2], pods[0]})
			for _, n := range c.nodes {
				c.restart(n, current(t), n.encrypted("--routing", routing)...)
			}
			streams.waitProgress()
			streams.finish()
			w.expect(t, "all")
		})
	}
}

// TestEncryptionPending has a node without a key: nothing of a pod goes there, and its plaintext is dropped. Once it has
// one, they reach each other. While plaintext is allowed, both ways work.
func TestEncryptionPending(t *testing.T) {
	t.Parallel()
	needEncryption(t, netlab.WireGuard)
	c := newCluster(t, testbed.Options{IPv6: true})
	first, second := c.nodes[0], c.nodes[1]
	c.publish(first)
	c.start(first, current(t), first.encrypted()...)
	c.start(second, current(t))
	for _, n := range c.nodes {
		c.waitReady(n)
	}
	w := c.tapWire()
	near, far := c.addPod(first, "near"), c.addPod(second, "far")
	for _, pair := range [][2]*testbed.Pod{{near, far}, {far, near}, {asPod(first, far), far}} {
		if err := c.reach(pair[0], pair[1]); err == nil {
			t.Errorf("%s reaches %s", pair[0].Name, pair[1].Name)
		}
	}
	for _, packet := range w.Plain() {
		if slices.Contains(near.Addresses, packet.Source) {
			t.Errorf("the first node sends in plaintext: %v", packet)
		}
	}
	dropped, err := first.api().Drops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []agentapi.Drop{{Program: "from_wire", Reason: "unencrypted"}, {Program: "from_pod", Reason: "encryption_pending"}} {
		if !slices.ContainsFunc(dropped, func(d agentapi.Drop) bool {
			return d.Program == want.Program && d.Reason == want.Reason && d.Packets > 0
		}) {
			t.Errorf("no drop %s %s", want.Program, want.Reason)
		}
	}
	c.wantPathsTo(first, map[string]string{"n2": "encryption pending 0"})

	c.restart(first, current(t), first.encrypted("--encryption-strict=false")...)
	if err := c.reach(near, far); err != nil {
		t.Errorf("while plaintext is allowed: %v", err)
	}
	streams := c.startStreams([2]*testbed.Pod{near, far}, [2]*testbed.Pod{far, near})
	c.publish(second)
	c.restart(second, current(t), second.encrypted("--encryption-strict=false")...)
	streams.waitProgress()
	c.wantPathsTo(first, map[string]string{"n2": "wireguard 1440"})
	for _, n := range c.nodes {
		c.restart(n, current(t), n.encrypted()...)
	}
	streams.waitProgress()
	streams.finish()
	strict := c.tapWire()
	if err := c.reach(near, far); err != nil {
		t.Error(err)
	}
	strict.expect(t, "strict")
}

// TestEncryptionTurnedOn turns encryption on as the manual says, changes its kind and changes it back, while connections go on.
// Once it is strict nothing goes in plaintext.
func TestEncryptionTurnedOn(t *testing.T) {
	t.Parallel()
	for _, order := range [][]netlab.Encryption{{netlab.WireGuard, netlab.IPsec}, {netlab.IPsec, netlab.WireGuard}} {
		t.Run(order[0].Name, func(t *testing.T) {
			for _, mode := range order {
				needEncryption(t, mode)
			}
			c := up(t, testbed.Options{IPv6: true})
			p := c.addPods()
			streams := c.startStreams([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.b})
			for step, mode := range order {
				if step > 0 { // plaintext is accepted on all nodes, before one sends it
					for _, n := range c.nodes {
						c.restart(n, current(t), n.encrypted("--encryption-strict=false")...)
						streams.waitProgress()
					}
				}
				for _, n := range c.nodes {
					c.giveKeys([]*node{n}, mode)
					c.restart(n, current(t), n.encrypted("--encryption-strict=false")...)
					if mode == netlab.IPsec {
						c.announce(n)
					}
					streams.waitProgress()
				}
				for _, n := range c.nodes {
					c.waitEncrypted(n)
				}
				for _, n := range c.nodes {
					c.restart(n, current(t), n.encrypted()...)
					streams.waitProgress()
				}
				w := c.tapWire()
				streams.waitProgress()
				w.expect(t, "strict "+mode.Name)
				w.Stop()
				c.waitMTU(p.a, mode.MTU)
			}
			streams.finish()
			for _, n := range c.nodes {
				c.waitNoProblem(n)
			}
		})
	}
}

// TestEncryptionOff turns encryption off as the manual says, while connections go on.
func TestEncryptionOff(t *testing.T) {
	t.Parallel()
	c := upEncrypted(t, netlab.WireGuard, testbed.Options{IPv6: true})
	p := c.addPods()
	streams := c.startStreams([2]*testbed.Pod{p.a, p.far}, [2]*testbed.Pod{p.far, p.b})
	for _, n := range c.nodes {
		c.restart(n, current(t), n.encrypted("--encryption-strict=false")...)
	}
	streams.waitProgress()
	for _, n := range c.nodes {
		c.restart(n, current(t))
		n.object.Annotations = nil // its agent takes the key back, where there is an API server
		c.writeNode(n)
		streams.waitProgress()
	}
	streams.finish()
	for _, n := range c.nodes {
		c.waitNoProblem(n)
		if out, err := n.Netns.Output(t.Context(), "ip", "link", "show", wireguard.Name); err == nil {
			t.Errorf("%s still has the device:\n%s", n.Name, out)
		}
	}
	c.wantPathsTo(c.nodes[0], map[string]string{"n2": "direct 1500"})
	c.waitMTU(p.a, 1500)
	if err := c.reach(p.a, p.far); err != nil {
		t.Error(err)
	}
}
