package e2e

import (
	"testing"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// pods are two pods on the first node and one on the second.
type pods struct{ a, b, far *testbed.Pod }

func (c *cluster) addPods() pods {
	c.t.Helper()
	return pods{c.addPod(c.nodes[0], "a"), c.addPod(c.nodes[0], "b"), c.addPod(c.nodes[1], "far")}
}

// pairs are a pair on one node and a pair on two nodes.
func (p pods) pairs() [][2]*testbed.Pod {
	return [][2]*testbed.Pod{{p.a, p.b}, {p.a, p.far}}
}

// TestTrafficOutlivesAgents kills, restarts, stops and upgrades the agents of both nodes under traffic. No connection, no
// byte and no request is lost.
func TestTrafficOutlivesAgents(t *testing.T) {
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			before, after := current(t), newer(t)
			c := up(t, testbed.Options{IPv6: true}, "--routing", routing)
			traffic := c.startTraffic(c.addPods().pairs()...)

			for _, n := range c.nodes {
				c.kill(n)
			}
			traffic.waitProgress() // without agents
			for _, n := range c.nodes {
				c.start(n, before, "--routing", routing)
				c.waitReady(n)
			}
			for _, n := range c.nodes {
				c.restart(n, after, "--routing", routing)
				if got := c.status(n).Version; got != netlab.Newer {
					t.Errorf("agent of %s is version %s after the upgrade", n.Name, got)
				}
			}
			for _, n := range c.nodes { // downgrade
				if err := c.terminate(n); err != nil {
					t.Errorf("stop agent of %s: %v", n.Name, err)
				}
				c.start(n, before, "--routing", routing)
				c.waitReady(n)
			}
			traffic.finish()
		})
	}
}

// TestChangeOfRoutingUnderTraffic changes --routing and back under traffic.
func TestChangeOfRoutingUnderTraffic(t *testing.T) {
	c := up(t, testbed.Options{IPv6: true})
	traffic := c.startTraffic(c.addPods().pairs()...)
	for _, routing := range []string{"kernel", "ebpf"} {
		for _, n := range c.nodes {
			c.restart(n, current(t), "--routing", routing)
			traffic.waitProgress() // first with both modes, then with the new one
		}
	}
	traffic.finish()
}
