package instructions

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/device/kernelprobe"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// clockVariable is set where the CPU's clock counts instructions.
const clockVariable = "BEELINE_INSTRUCTIONS"

// buildDir has the binaries of this run.
var buildDir string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if name := os.Getenv(endVariable); name != "" {
		return end(name)
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "beeline-instructions-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(buildDir)
	return m.Run()
}

// network is what runs on a lab's nodes.
type network struct {
	name string
	// agents run with these flags; without agents there are no pods.
	agents bool
	flags  []string
	// pool is the kind of device of pods with addresses of the wire, from an IPPool of each node; "": pods have addresses of their
	// node's range.
	pool string
	// attach gives a pod a device where there are no agents; nil: there are no pods.
	attach func(t *testing.T, node *testbed.Node, pod *testbed.Pod)
	// missing says what the kernel lacks for it.
	missing func() error
	// most is how many times the instructions of nodes without Beeline a path may take: some hundredths above what
	// docs/measured/instructions.md says.
	most map[string]float64
	// spread is the largest difference between the counts of a path, of the least; 0: usualSpread.
	spread float64
}

// networks are nodes without Beeline, to which the others compare, and Beeline's kinds of pods.
var networks = []network{
	{name: "none"},
	{name: "kernel-macvlan", attach: attachMacvlan},
	{name: "veth", agents: true, flags: []string{"--device=veth"}, most: map[string]float64{"node": 1.09, "remote": 1.16, "local": 1.05}},
	{
		name: "netkit", agents: true, flags: []string{"--device=netkit"}, missing: noNetkit,
		most: map[string]float64{"node": 1.09, "remote": 1.13, "local": 1.09},
	},
	{name: "macvlan", agents: true, pool: "macvlan", most: map[string]float64{"node": 1.13, "remote": 1.15, "local": 1.08}},
}

func noNetkit() error { return kernelprobe.Netkit(func(int) error { return nil }) }

// path is where two ends are.
type path struct {
	name           string
	client, server testbed.Netns
	address        netip.Addr
}

// repeated is how often each path is measured: the counts show how far they repeat.
const repeated = 3

// usualSpread is the largest difference between the counts of a path, of the least.
const usualSpread = 0.005

// TestTransaction reports the instructions of a TCP request of one byte and its reply, in the benchmark format. It fails where
// counts do not repeat, or are above their bound.
func TestTransaction(t *testing.T) {
	testenv.Root(t)
	if os.Getenv(clockVariable) == "" {
		t.Log("the clock of this machine does not count instructions: the counts mean nothing (go run ./test/vm -instructions)")
	}
	var node float64
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			if n.missing != nil {
				if err := n.missing(); err != nil {
					testenv.Missing(t, "not on this kernel: "+err.Error())
				}
			}
			for _, p := range n.paths(t) {
				count := repeatedCost(t, n, p)
				if n.name == networks[0].name {
					node = count
				}
				if bound := n.most[p.name]; os.Getenv(clockVariable) != "" && bound > 0 && count > bound*node {
					t.Errorf("%s takes %.0f instructions, %.3f times what nodes without Beeline take; at most %.2f", p.name, count, count/node, bound)
				}
			}
		})
	}
}

// repeatedCost reports the cost of a path several times, and returns the least.
func repeatedCost(t *testing.T, n network, p path) float64 {
	t.Helper()
	var all []float64
	times := repeated
	if os.Getenv(clockVariable) == "" {
		times = 1
	}
	for range times {
		each := cost(t, p.client, p.server, p.address)
		all = append(all, each)
		if os.Getenv(clockVariable) != "" {
			fmt.Printf("BenchmarkTransaction/network=%s/path=%s %d %.0f instructions/op\n", n.name, p.name, transactions, each)
		}
	}
	least, most := slices.Min(all), slices.Max(all)
	if os.Getenv(clockVariable) != "" && most > least*(1+cmp.Or(n.spread, usualSpread)) {
		t.Errorf("%s takes %.0f to %.0f instructions: they do not repeat", p.name, least, most)
	}
	return least
}

// paths brings up a lab.
func (n network) paths(t *testing.T) []path {
	t.Helper()
	lab, err := testbed.Up(t.Context(), testbed.Options{Name: "instructions-" + n.name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	nodes := lab.Nodes()
	paths := []path{{"node", asDeepAsPod(t, nodes[0]), asDeepAsPod(t, nodes[1]), nodes[1].Addresses[0].Addr()}}
	if n.agents || n.attach != nil {
		paths = append(paths, n.pods(t, lab)...)
	}
	return paths
}

// asDeepAsPod is the node's network namespace with a cgroup like that of a pod: what the scheduler accounts grows with the depth of a
// process's cgroup.
func asDeepAsPod(t *testing.T, node *testbed.Node) testbed.Netns {
	t.Helper()
	n := node.Netns
	n.Cgroup = filepath.Join(node.Cgroup, "end")
	if err := os.MkdirAll(n.Cgroup, 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}
