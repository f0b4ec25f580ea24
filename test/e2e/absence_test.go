package e2e

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// absence is longer than the lease of the MAC addresses in `routes` (30 s, see docs/architecture.md).
const absence = 32 * time.Second

// TestLongAbsence leaves the nodes without agents until the lease expires. The kernel then resolves next hops, no
// packet is lost, and the node's new MAC address is found without an agent.
func TestLongAbsence(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	p := c.addPods()
	traffic := c.startTraffic([2]*testbed.Pod{p.a, p.far})
	for _, n := range c.nodes {
		c.kill(n)
	}
	time.Sleep(absence)
	traffic.waitProgress()
	traffic.finish()

	changeLink(t, c.nodes[1].Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error {
		return h.LinkSetHardwareAddr(l, net.HardwareAddr{0x02, 0, 0, 0, 0x77, 0x43})
	})
	eventually(t, func() error { return c.reach(p.a, p.far) })
	traffic = c.startTraffic([2]*testbed.Pod{p.a, p.far})
	for _, n := range c.nodes {
		c.start(n, current(t))
		c.waitReady(n)
	}
	traffic.waitProgress()
	traffic.finish()
}
