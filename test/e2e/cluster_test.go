package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// patience is the timeout of all waits, long enough for a busy machine.
var patience = testenv.Patience(2 * time.Minute)

// cluster is a lab with agents on its nodes. The end of the test removes it.
type cluster struct {
	t   *testing.T
	lab *testbed.Lab
	// manifests is the directory that all agents read.
	manifests string
	nodes     []*node
	// poolRanges are addresses of pods that no node's range has: a tap looks for them too.
	poolRanges []netip.Prefix
	// plugin is the build whose CNI plugin adds pods; nil is current.
	plugin *programs
}

// node is one node of a cluster.
type node struct {
	*testbed.Node
	// object is the node's manifest; writeNode publishes it.
	object *corev1.Node
	agent  *testbed.Process
	// encryption is that of agents that encrypt; see node.encrypted.
	encryption netlab.Encryption
}

var labCount atomic.Int32

// newCluster makes a lab with its manifests and no agents.
func newCluster(t *testing.T, o testbed.Options) *cluster {
	t.Helper()
	testenv.Root(t)
	o.Name = fmt.Sprint(labPrefix, labCount.Add(1))
	lab, err := testbed.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, lab: lab, manifests: filepath.Join(lab.Dir(), "manifests")}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs()
		}
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	if err := os.Mkdir(c.manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, n := range lab.Nodes() {
		node := &node{Node: n, object: netlab.NodeObject(n)}
		c.nodes = append(c.nodes, node)
		c.writeNode(node)
	}
	return c
}

// up makes a lab, starts an agent with these flags on each node, and waits until all are ready.
func up(t *testing.T, o testbed.Options, flags ...string) *cluster {
	t.Helper()
	programs := current(t)
	c := newCluster(t, o)
	for _, n := range c.nodes {
		c.start(n, programs, flags...)
	}
	for _, n := range c.nodes {
		c.waitReady(n)
	}
	return c
}

func (c *cluster) showLogs() {
	for _, n := range c.nodes {
		log, err := os.ReadFile(n.logFile())
		if err != nil {
			continue
		}
		const enough = 8 << 10
		c.t.Logf("agent of %s:\n%s", n.Name, log[max(0, len(log)-enough):])
	}
}

func (c *cluster) manifestFile(n *node) string { return filepath.Join(c.manifests, n.Name+".yaml") }

// writeNode publishes the node's object to all agents.
func (c *cluster) writeNode(n *node) {
	c.t.Helper()
	text, err := yaml.Marshal(n.object)
	if err != nil {
		c.t.Fatal(err)
	}
	c.writeManifest(n.Name+".yaml", text)
}

// writeManifest replaces a manifest by rename; nil is an empty one.
func (c *cluster) writeManifest(name string, text []byte) {
	c.t.Helper()
	if err := netlab.WriteManifest(c.manifests, name, text); err != nil {
		c.t.Fatal(err)
	}
}

// eventually waits until the condition returns nil.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	begin := time.Now()
	for {
		err := condition()
		if err == nil {
			return
		}
		if time.Since(begin) > patience {
			t.Fatalf("still after %s: %v", patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
