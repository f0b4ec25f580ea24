package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// TestAnotherVersion upgrades to a version whose maps have other layouts of the same size, goes back, and upgrades
// again, under traffic with a policy: no packet is lost, and each version leaves only its own maps.
func TestAnotherVersion(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"ebpf": {"--services=ebpf"}, "kernel": {"--services=ebpf", "--routing=kernel"}} {
		t.Run(name, func(t *testing.T) {
			g := newPolicyLab(t, flags...)
			n := g.here
			g.policy("web", "{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}")
			g.labels["far"] = "stranger"
			g.writePods()
			g.expectPorts(g.far, g.pod)
			g.expectPorts(g.near, g.pod, backendPort, otherPort)
			unknown := pinOfNewerVersion(t, n)
			tr := &traffic{t: t}
			for _, a := range g.pod.addresses {
				s, err := startStream("stream "+family(a), g.near.netns, g.pod.netns, a)
				tr.add(s, err)
				tr.streams = append(tr.streams, s)
			}
			tr.waitProgress()
			probe := g.probe(g.far)
			before := pinsOf(t, n)
			for _, p := range []programs{otherLayouts(t), current(t), otherLayouts(t)} {
				g.kill(n)
				tr.waitProgress()
				g.start(n, p, flags...)
				g.waitReady(n)
				tr.waitProgress()
				g.expectPorts(g.near, g.pod, backendPort, otherPort)
				g.expectPorts(g.far, g.pod)
				now := pinsOf(t, n)
				if len(now) != len(before) || slices.Equal(now, before) {
					t.Errorf("pins of the previous version %q, now %q", before, now)
				}
				before = now
			}
			if got := g.status(n).Version; got != netlab.OtherLayouts {
				t.Errorf("the agent is version %s", got)
			}
			if _, err := os.Stat(unknown); err != nil {
				t.Errorf("the pin of an unknown version: %v", err)
			}
			probe.finish(t)
			tr.finish()
		})
	}
}

// pinsOf lists the pins of the node's maps.
func pinsOf(t *testing.T, n *node) (names []string) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(n.BPFFS, "maps"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// pinOfNewerVersion pins a map that no version of the test has.
func pinOfNewerVersion(t *testing.T, n *node) (path string) {
	t.Helper()
	path = filepath.Join(n.BPFFS, "maps", "wonders@0123456789abcdef")
	pinMap(t, n, path, "type", "hash", "key", "8", "value", "4", "entries", "16", "name", "wonders")
	return path
}

func pinMap(t *testing.T, n *node, path string, layout ...string) {
	t.Helper()
	bpftool, err := exec.LookPath("bpftool")
	if err != nil {
		testenv.Missing(t, "no bpftool (Debian package bpftool)")
	}
	if _, err := n.Output(t.Context(), bpftool, append([]string{"map", "create", path}, layout...)...); err != nil {
		t.Fatal(err)
	}
}

// TestTablesOfAnotherLayout replaces pins by maps with another layout. The next agent fills maps of its own and changes
// over to them without packet loss.
func TestTablesOfAnotherLayout(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	pods := c.addPods()
	traffic := c.startTraffic(pods.pairs()...)
	c.kill(n)
	for table, layout := range map[string][]string{
		"endpoints": {"type", "hash", "key", "8", "value", "4", "entries", "16", "flags", "1"},
		"routes":    {"type", "lpm_trie", "key", "8", "value", "4", "entries", "16", "flags", "1"},
	} {
		pins, err := filepath.Glob(filepath.Join(n.BPFFS, "maps", table+"@*"))
		if err != nil || len(pins) != 1 {
			t.Fatalf("pins of %s are %q: %v", table, pins, err)
		}
		if err := os.Remove(pins[0]); err != nil {
			t.Fatal(err)
		}
		pinMap(t, n, pins[0], append([]string{"name", table}, layout...)...)
	}
	traffic.waitProgress() // the programs hold the maps without pins
	c.start(n, newer(t))
	c.waitReady(n)
	c.wantTraces(n, pods.a, pods.b)
	traffic.waitProgress()
	c.restart(n, current(t)) // adopts the maps of the previous agent
	traffic.waitProgress()
	traffic.finish()
	if err := c.reach(c.addPod(n, "late"), pods.far); err != nil {
		t.Error(err)
	}
}

// TestPinsLost removes all pins while no agent runs, which detaches the programs: the agent attaches them again.
func TestPinsLost(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	pods := c.addPods()
	var before map[string]int
	c.waitStatus(n, func(s *agentapi.Status) error { // to_pod is attached some time after ADD
		before = attached(s)
		if before["to_pod"] != before["from_pod"] {
			return fmt.Errorf("programs on devices: %v", before)
		}
		return nil
	})
	c.kill(n)
	for _, dir := range []string{"maps", "links"} {
		if err := os.RemoveAll(filepath.Join(n.BPFFS, dir)); err != nil {
			t.Fatal(err)
		}
	}
	c.start(n, current(t))
	c.waitReady(n)
	c.wantTraces(n, pods.a, pods.b)
	for _, pair := range append(pods.pairs(), [2]*testbed.Pod{pods.far, pods.b}) {
		if err := c.reach(pair[0], pair[1]); err != nil {
			t.Error(err)
		}
	}
	c.waitStatus(n, func(s *agentapi.Status) error { // some programs are attached after the agent is ready
		if diff := cmp.Diff(before, attached(s)); diff != "" {
			return fmt.Errorf("programs on devices (-before +after):\n%s", diff)
		}
		return nil
	})
	c.delPod(n, pods.a)
	c.delPod(n, pods.b)
	c.waitNoTraces(n)
}

// attached counts the attachments of each program.
func attached(s *agentapi.Status) map[string]int {
	on := map[string]int{}
	for _, p := range s.Programs {
		on[p.Name] = p.Attached
	}
	return on
}
