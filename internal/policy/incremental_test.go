package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// chaos is a randomWorld whose pods conflict with each other's addresses and with the node's. The node itself has
// pods and addresses that the cluster lacks, or has otherwise.
type conflictingCluster struct {
	*randomCluster
	local Local
}

func (w *conflictingCluster) change() {
	key := cluster.Key{Namespace: w.of("p", "q", "r"), Name: w.of("0", "1", "2", "3")}
	switch w.IntN(8) {
	case 0: // a Pod with another's address
		if p := w.pods[key]; p != nil {
			other := *p
			other.Addresses = []netip.Addr{w.address()}
			w.pods[key] = &other
		}
	case 1: // a pod is added here
		p := LocalPod{Pod: key, UID: w.of("", "x", "y"), Addresses: []netip.Addr{w.address()}}
		w.local.Pods = append(slices.Clone(w.local.Pods), p)
	case 2: // and removed
		if n := len(w.local.Pods); n > 0 {
			at := w.IntN(n)
			w.local.Pods = slices.Delete(slices.Clone(w.local.Pods), at, at+1)
		}
	case 3:
		w.local.Addresses = []netip.Addr{w.address()}
	case 4:
		w.last.Nodes = []cluster.Node{{Name: "n1", Addresses: []netip.Addr{w.address()}}, {Name: "n2"}}
	case 5:
		delete(w.namespaces, key.Namespace)
	case 6:
		w.local.Unlabelled = !w.local.Unlabelled
	default:
		w.randomCluster.change()
	}
}

// The reference is a new Compiler: whatever the previous state, the incremental result is the same, with the same
// problems, and unchanged maps are the same map.
func TestIncrementalIsTheReference(t *testing.T) {
	for seed := range uint64(16) {
		w := &conflictingCluster{randomCluster: newRandomCluster(seed)}
		c := NewCompiler("n1")
		var before *Tables
		var snapshot *cluster.Snapshot
		for step := range 50 {
			for range w.IntN(4) {
				w.change()
			}
			snapshot = w.snapshot()
			got, problems := c.Compile(snapshot, w.local)
			want, wanted := NewCompiler("n1").Compile(snapshot, w.local)
			if diff := cmp.Diff(want, got, sameTables); diff != "" {
				t.Fatalf("seed %d, step %d: (-from scratch +incremental):\n%s", seed, step, diff)
			}
			if diff := cmp.Diff(wanted, problems, sameTables); diff != "" {
				t.Fatalf("seed %d, step %d: problems (-from scratch +incremental):\n%s", seed, step, diff)
			}
			disjoint(t, got)
			if before != nil {
				kept(t, before.Policies, got.Policies)
			}
			before = got
		}
		again, _ := c.Compile(snapshot, w.local)
		if again.Peers != before.Peers || len(c.peers.changes) > 0 {
			t.Fatalf("seed %d: nothing changed, but the identities did", seed)
		}
		consistent(t, c, seed)
	}
}

// consistent fails if the state of peers is more than what exists.
func consistent(t *testing.T, c *Compiler, seed uint64) {
	t.Helper()
	counts := map[*numbered[*identity]]int{}
	for addr, at := range c.peers.at {
		if at.identity != nil {
			counts[at.identity]++
		}
		if at.pod == nil && at.identity == nil {
			t.Fatalf("seed %d: %s has no owner", seed, addr.address())
		}
	}
	if len(counts) != len(c.peers.counts) {
		t.Fatalf("seed %d: %d identities are in use, and %d counted", seed, len(counts), len(c.peers.counts))
	}
	pods := 0
	for i, n := range counts {
		if c.peers.counts[i] != n {
			t.Fatalf("seed %d: an identity has %d addresses, and is counted for %d", seed, n, c.peers.counts[i])
		}
	}
	for _, groups := range c.peers.groups {
		for _, s := range groups {
			pods += s.pods
		}
	}
	ownsAddresses := 0
	for p := range c.peers.pods.All() {
		if c.ownsAddresses(p) {
			ownsAddresses++
		}
	}
	if pods != ownsAddresses {
		t.Fatalf("seed %d: %d pods are in groups, want %d", seed, pods, ownsAddresses)
	}
}

// large is a cluster of some 150,000 pods, of which 30 are local.
func large(pods int) (*cluster.Snapshot, Local) {
	s, _ := thousand(0)
	s.Pods = cluster.List[*cluster.Pod]{}
	for i := range pods {
		namespace, node := fmt.Sprintf("ns-%02d", i%50), "n2"
		if i < 30 {
			node = "n1"
		}
		s.Pods = withPod(s.Pods, &cluster.Pod{
			Namespace: namespace, Name: fmt.Sprintf("pod-%06d", i), Node: node, Addresses: []netip.Addr{number(10<<24 | uint32(i))},
			Labels: cluster.NewLabels(map[string]string{"app": fmt.Sprint(i / 50 % 20), "tier": fmt.Sprint(i % 3), "pod-template-hash": "5d8f"}),
			Ports:  []cluster.ContainerPort{{Name: "http", Protocol: cluster.TCP, Number: 8080}},
		})
	}
	sortSnapshot(s)
	return s, localTo("n1", s)
}

// withLabels gives a snapshot in which a pod of another node has other labels.
func withLabels(s *cluster.Snapshot, at int, app string) *cluster.Snapshot {
	changed, pod := *s, *s.Pods.Slice()[at]
	pod.Labels = cluster.NewLabels(map[string]string{"app": app, "tier": "0"})
	changed.Pods = withPod(s.Pods, &pod)
	return &changed
}

// A changed pod costs what it affects: no addresses but its own are visited. What lists share is tested in package sorted.
func TestChangeCostsWhatItTouches(t *testing.T) {
	s, local := large(20_000)
	c := NewCompiler("n1")
	before, _ := c.Compile(s, local)
	if n := before.Peers.Len(); n != 20_000 {
		t.Fatalf("%d pods have identities", n)
	}
	after, _ := c.Compile(withLabels(s, 399, "1"), local)
	others := len(slices.Collect(after.Peers.Since(before.Peers)))
	if len(c.peers.dirty) != 1 || len(c.peers.changes) != 1 || others != 1 {
		t.Errorf("%d addresses are visited, %d changed, and %d differ; want one of each", len(c.peers.dirty), len(c.peers.changes), others)
	}
}

// One pod of 150,000 changes, beside those of BenchmarkLabelChange.
func BenchmarkLargeLabelChange(b *testing.B) {
	s, local := large(150_000)
	snapshots := [2]*cluster.Snapshot{withLabels(s, 2_999, "1"), s}
	c := NewCompiler("n1")
	c.Compile(s, local)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Compile(snapshots[i%2], local)
	}
}
