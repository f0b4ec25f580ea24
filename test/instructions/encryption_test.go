package instructions

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	labnetwork "github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// workersSpread is how far counts of WireGuard do not repeat: its workers take packets one by one or several at once.
const workersSpread = 0.05

// mostOfKernel is how many times the instructions of the kernel's own encryption Beeline's may take.
const mostOfKernel = 1.03

// TestEncryptedTransaction reports what a transaction between pods of two nodes costs with each network of the bench's suite
// encryption, and between nodes without any. Beeline's encryption may not cost more than the kernel's own of the same kind.
func TestEncryptedTransaction(t *testing.T) {
	testenv.Root(t)
	if os.Getenv("BEELINE_BIN") == "" {
		programs, err := netlab.Variant("../..", buildDir, netlab.Current)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("BEELINE_BIN", programs.Dir)
	}
	labnetwork.AgentPatience = testenv.Patience(4 * labnetwork.AgentPatience)
	costs := map[string]float64{}
	for _, n := range labnetwork.WithEncryption() {
		t.Run(n.Name(), func(t *testing.T) {
			if why := n.Unsupported(); why != "" {
				testenv.Missing(t, why)
			}
			measured := network{name: n.Name()}
			if kind, _ := labnetwork.EncryptionOf(n); kind == labnetwork.WireGuard {
				measured.spread = workersSpread
			}
			costs[n.Name()] = repeatedCost(t, measured, ofBench(t, n))
		})
	}
	for _, kind := range []string{"wireguard", "ipsec"} {
		own, kernel := costs["beeline-"+kind], costs["kernel-"+kind]
		if os.Getenv(clockVariable) != "" && own > kernel*mostOfKernel {
			t.Errorf("Beeline with %s takes %.0f instructions, more than %.2f times the %.0f of the kernel's own", kind, own, mostOfKernel, kernel)
		}
	}
}

// ofBench brings up a network of the bench in a lab, with an end on each of two nodes, and lets its agents stand still.
func ofBench(t *testing.T, n labnetwork.Network) path {
	t.Helper()
	lab, err := testbed.Up(t.Context(), testbed.Options{Name: "instructions-" + n.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Down(context.Background()); err != nil {
			t.Errorf("take down: %v", err)
		}
	})
	if err := n.Up(t.Context(), lab); err != nil {
		t.Fatal(err)
	}
	var pods []*testbed.Pod
	for i, node := range lab.Nodes() {
		pod, err := labnetwork.AddPod(t.Context(), n, lab, node, podNames[i*2])
		if err != nil {
			t.Fatal(err)
		}
		if pod.Path == node.Path {
			pod.Netns = asDeepAsPod(t, node)
		}
		pods = append(pods, pod)
	}
	if _, err := labnetwork.VerifyWire(t.Context(), n, lab, pods[0], pods[1]); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until the agents have attached what they attach after ADD
	for _, node := range lab.Nodes() {
		if pid := labnetwork.AgentPID(n, node); pid != 0 {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		}
	}
	return path{"remote", pods[0].Netns, pods[1].Netns, pods[1].Addresses[0]}
}
