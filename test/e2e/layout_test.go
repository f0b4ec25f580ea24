package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/topology"
)

// TestTablesOfAnotherLayout starts an agent that finds pinned tables whose layout is not its own, as after an upgrade
// that changes it: it fills tables of its own and goes over to them, and no packet of the pods notices.
func TestTablesOfAnotherLayout(t *testing.T) {
	t.Parallel()
	bpftool, err := exec.LookPath("bpftool")
	if err != nil {
		testenv.Missing(t, "no bpftool (Debian package bpftool)")
	}
	c := up(t, topology.Options{IPv6: true})
	n := c.nodes[0]
	pods := c.addPods()
	traffic := c.startTraffic(pods.pairs()...)
	c.kill(n)
	for table, layout := range map[string][]string{
		"endpoints": {"type", "hash", "key", "8", "value", "4", "entries", "16", "flags", "1"},
		"routes":    {"type", "lpm_trie", "key", "8", "value", "4", "entries", "16", "flags", "1"},
	} {
		pin := filepath.Join(n.BPFFS, "maps", table)
		if err := os.Remove(pin); err != nil {
			t.Fatal(err)
		}
		create := append([]string{"map", "create", pin, "name", table}, layout...)
		if _, err := n.Place().Output(t.Context(), bpftool, create...); err != nil {
			t.Fatal(err)
		}
	}
	traffic.goesOn() // the programs still have the tables that lost their pins
	c.start(n, newer(t))
	c.waitReady(n)
	c.wantTraces(n, pods.a, pods.b)
	traffic.goesOn()
	c.restart(n, current(t)) // adopts the tables that the first one made
	traffic.goesOn()
	traffic.finish()
	if err := c.reach(c.addPod(n, "late"), pods.far); err != nil {
		t.Error(err)
	}
}

// TestPinsLost removes all pins while the agent is away, which takes the programs off the devices: the agent puts
// everything back.
func TestPinsLost(t *testing.T) {
	t.Parallel()
	c := up(t, topology.Options{IPv6: true})
	n := c.nodes[0]
	pods := c.addPods()
	before := attached(c.status(n))
	c.kill(n)
	for _, dir := range []string{"maps", "links"} {
		if err := os.RemoveAll(filepath.Join(n.BPFFS, dir)); err != nil {
			t.Fatal(err)
		}
	}
	c.start(n, current(t))
	c.waitReady(n)
	c.wantTraces(n, pods.a, pods.b)
	for _, pair := range append(pods.pairs(), [2]*topology.Pod{pods.far, pods.b}) {
		if err := c.reach(pair[0], pair[1]); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(before, attached(c.status(n))); diff != "" {
		t.Errorf("programs on devices (-before +after):\n%s", diff)
	}
	c.delPod(n, pods.a)
	c.delPod(n, pods.b)
	c.waitNoTraces(n)
}

// attached counts the devices that each program is on.
func attached(s *api.Status) map[string]int {
	on := map[string]int{}
	for _, p := range s.Programs {
		on[p.Name] = p.Attached
	}
	return on
}
