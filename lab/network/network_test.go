package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// labFor makes a lab for a network, which ends with the test.
func labFor(t *testing.T, c Network, o testbed.Options) *testbed.Lab {
	t.Helper()
	testenv.Root(t)
	if why := c.Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	o.Name = "t-" + strings.ReplaceAll(c.Name(), "+", "-")
	lab, err := testbed.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	return lab
}

// up makes a lab with the network's network on it; both end with the test.
func up(t *testing.T, c Network, o testbed.Options) *testbed.Lab {
	t.Helper()
	lab := labFor(t, c, o)
	if err := c.Up(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	return lab
}

func addPod(t *testing.T, c Network, lab *testbed.Lab, node int, name string) *testbed.Pod {
	t.Helper()
	pod, err := AddPod(t.Context(), c, lab, lab.Node(node), name)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestMain builds this project's own binaries, which two networks run. Where they cannot be built, the tests that need
// them say so. As a client of connections, which has to be a process in a pod, this program runs no tests.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == convergence.Command {
		if err := convergence.Answer(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(withBinaries(m.Run))
}

func withBinaries(run func() int) int {
	_, err := exec.LookPath("go")
	if err != nil || os.Geteuid() != 0 || os.Getenv("BEELINE_BIN") != "" {
		return run()
	}
	dir, err := os.MkdirTemp("", "beeline-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "../../cmd/beeline-agent", "../../cmd/beeline-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build binaries: %v\n%s", err, said)
		return 1
	}
	os.Setenv("BEELINE_BIN", dir)
	return run()
}

func TestPodsReachPods(t *testing.T) {
	labs := map[string]testbed.Options{
		"IPv4":       {},
		"dual stack": {IPv6: true, Nodes: 3},
		"jumbo":      {MTU: 9000},
	}
	for _, c := range All() {
		for name, o := range labs {
			t.Run(c.Name()+"/"+name, func(t *testing.T) {
				lab := up(t, c, o)
				a, b := addPod(t, c, lab, 0, "a"), addPod(t, c, lab, 0, "b")
				far := addPod(t, c, lab, len(lab.Nodes())-1, "far")
				for _, pair := range [][2]*testbed.Pod{{a, b}, {b, a}, {a, far}, {far, a}} {
					if err := Verify(t.Context(), c, pair[0], pair[1]); err != nil {
						t.Error(err)
					}
				}
				want := lab.MTU
				if strings.HasSuffix(c.Name(), "vxlan") {
					want -= 50
				}
				if a.MTU != want {
					t.Errorf("path MTU %d, want %d", a.MTU, want)
				}
			})
		}
	}
}

// links are the devices of a node by name.
func links(t *testing.T, node *testbed.Node) []string {
	t.Helper()
	var names []string
	err := node.Netlink(func(h *netlink.Handle) error {
		all, err := h.LinkList()
		for errors.Is(err, netlink.ErrDumpInterrupted) { // devices changed meanwhile
			all, err = h.LinkList()
		}
		for _, l := range all {
			names = append(names, l.Type()+" "+l.Attrs().Name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestDelPodLeavesNothing(t *testing.T) {
	for _, c := range All() {
		t.Run(c.Name(), func(t *testing.T) {
			lab := up(t, c, testbed.Options{})
			node := lab.Node(0)
			// The first pod brings what all pods of a node share, such as the bridge.
			shared := addPod(t, c, lab, 0, "shared")
			before, rules := links(t, node), c.Facts(t.Context(), lab)["netfilter rules"]

			pod := addPod(t, c, lab, 0, "pod")
			if err := Verify(t.Context(), c, shared, pod); err != nil {
				t.Error(err)
			}
			if err := DelPod(t.Context(), c, lab, pod); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, links(t, node)); diff != "" {
				t.Errorf("devices (-before +after):\n%s", diff)
			}
			if after := c.Facts(t.Context(), lab)["netfilter rules"]; after != rules {
				t.Errorf("%s netfilter rules after DelPod, %s before AddPod", after, rules)
			}
			if err := DelPod(t.Context(), c, lab, pod); err != nil {
				t.Errorf("second DelPod: %v", err)
			}
		})
	}
}

// A plugin that fails leaves nothing of the pod, and the pod can be made when the plugin works again.
func TestFailedAddLeavesNothing(t *testing.T) {
	c := beelineEBPF
	lab := up(t, c, testbed.Options{Nodes: 1})
	node := lab.Node(0)
	if err := os.Rename(agentSocket(node), agentSocket(node)+".away"); err != nil {
		t.Fatal(err)
	}
	before := links(t, node)
	pod, err := AddPod(t.Context(), c, lab, node, "a")
	if err == nil || pod != nil || !strings.Contains(err.Error(), `CNI ADD of pod "a" on n1`) {
		t.Errorf("without an agent, AddPod gives %v and %v, want an error of CNI ADD", pod, err)
	}
	if _, known, err := lab.PodNamed("a"); known || err != nil {
		t.Errorf("the pod is still there: %v, %v", known, err)
	}
	if diff := cmp.Diff(before, links(t, node)); diff != "" {
		t.Errorf("devices (-before +after):\n%s", diff)
	}
	if err := os.Rename(agentSocket(node)+".away", agentSocket(node)); err != nil {
		t.Fatal(err)
	}
	addPod(t, c, lab, 0, "a")
}
