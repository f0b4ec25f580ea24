package e2e

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestNodeChangesMAC gives a node's uplink another MAC address, as a replaced network card does. The other node resolves
// it without a Node update, and connections continue. The time that this takes is logged, not tested.
func TestNodeChangesMAC(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	p := c.addPods()
	streams := c.startStreams([2]*testbed.Pod{p.a, p.far})
	changed := net.HardwareAddr{0x02, 0, 0, 0, 0x77, 0x42}
	changeLink(t, c.nodes[1].Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error {
		return h.LinkSetHardwareAddr(l, changed)
	})
	begin := time.Now()
	c.waitStatus(c.nodes[0], func(s *agentapi.Status) error {
		if len(s.Nodes) != 1 || s.Nodes[0].MAC != changed.String() {
			return fmt.Errorf("other nodes: %+v", s.Nodes)
		}
		return nil
	})
	noticed := time.Since(begin)
	streams.waitProgress()
	t.Logf("the other node resolves it after %s, the streams continue after %s", noticed.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
	for _, pair := range [][2]*testbed.Pod{{p.a, p.far}, {p.far, p.b}} {
		if err := c.reach(pair[0], pair[1]); err != nil {
			t.Error(err)
		}
	}
	streams.finish()
}

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
