package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestPodVanishes deletes the namespaces of pods without DEL, with and without a running agent.
func TestPodVanishes(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	kept, peer := c.addPod(n, "kept"), c.addPod(c.nodes[1], "peer")
	vanish := func(pod *testbed.Pod) {
		if err := c.lab.DeletePod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}

	vanish(c.addPod(n, "first"))
	eventually(t, func() error { return c.onlyDevices(n, 1) })
	eventually(t, func() error { return c.onlyEndpoints(n, 1) })
	c.wantTraces(n, kept)

	second := c.addPod(n, "second")
	c.kill(n)
	vanish(second)
	eventually(t, func() error { return c.onlyDevices(n, 1) })
	c.start(n, current(t))
	c.waitReady(n)
	c.wantTraces(n, kept)

	if err := c.reach(peer, kept); err != nil {
		t.Error(err)
	}
	c.delPod(n, kept)
	c.waitNoTraces(n)
}

// TestStateDirectoryLost removes the endpoint files while no agent runs: pods keep their addresses, no other pod gets
// them, and DEL works.
func TestStateDirectoryLost(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	pod, peer := c.addPod(n, "pod"), c.addPod(c.nodes[1], "peer")
	c.kill(n)
	c.removeEndpointFiles(n)
	c.start(n, current(t))
	c.waitReady(n)
	other := c.addPod(n, "other")
	c.distinct([]*testbed.Pod{pod, other})
	for _, p := range []*testbed.Pod{pod, other} {
		if err := c.reach(peer, p); err != nil {
			t.Error(err)
		}
	}
	c.delPod(n, pod)
	c.delPod(n, other)
	c.waitNoTraces(n)
}

// TestVanishingPodsLeaveNodeReady deletes the devices of many pods one after another, some during a reconciliation: no
// reconciliation fails, so the node accepts ADDs.
func TestVanishingPodsLeaveNodeReady(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	const count = 40
	for i := range count {
		c.addPod(n, fmt.Sprintf("pod-%02d", i))
	}
	devices, err := hostDevices(n)
	if err != nil || len(devices) != count {
		t.Fatalf("devices: %v %v", devices, err)
	}
	before := c.failedReconciliations(n)
	for _, name := range devices {
		changeLink(t, n.Netns, name, (*netlink.Handle).LinkDel)
		time.Sleep(10 * time.Millisecond) // spreads them over several reconciliations
	}
	c.waitNoTraces(n)
	if after := c.failedReconciliations(n); after != before {
		t.Errorf("failed reconciliations: %q before, %q after", before, after)
	}
}

// failedReconciliations returns the metric's line; it is empty before the first failure.
func (c *cluster) failedReconciliations(n *node) string {
	c.t.Helper()
	for line := range strings.Lines(c.scrape(n, "/metrics", http.StatusOK)) {
		if strings.HasPrefix(line, `beeline_reconcile_duration_seconds_count{result="error"}`) {
			return line
		}
	}
	return ""
}
