//go:build kubernetes

package smoke

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/lab/result"
)

// benchLabel selects all objects of the bench.
const benchLabel = "app.kubernetes.io/name=beeline-bench"

// TestBench runs the bench, too briefly for valid figures: every route has some.
func TestBench(t *testing.T) {
	explainFailure(t)
	loadBenchImage(t)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	for _, out := range []string{first, second} {
		if output, err := benchCommand(t, "--workloads=tcp_rr,tcp_crr", "--rounds=1", "--out="+out).CombinedOutput(); err != nil {
			t.Fatalf("bench: %v\n%s", err, output)
		}
		wantMeasured(t, out)
		wantNoBenchNamespace(t)
	}
	compare := cluster.Command(t.Context(), externalLab, "report", first, second)
	if output, err := compare.CombinedOutput(); err != nil || !strings.Contains(string(output), "nodeport") {
		t.Errorf("compare two runs: %v\n%s", err, output)
	}
}

// TestBenchInterrupted interrupts a run, which must leave no objects.
func TestBenchInterrupted(t *testing.T) {
	explainFailure(t)
	loadBenchImage(t)
	run := benchCommand(t, "--workloads=tcp_rr", "--rounds=1000", "--out="+t.TempDir())
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	eventually(t, func() error {
		output, err := kubectl("get", "pods", "-A", "-l", benchLabel, "--field-selector=status.phase=Running", "-o", "name")
		if err == nil && output == "" {
			err = errors.New("the bench has no pods that run")
		}
		return err
	})
	if err := run.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("an interrupted run says that it is done")
		}
	case <-time.After(patience):
		_ = run.Process.Kill()
		t.Fatal("the bench does not end")
	}
	wantNoBenchNamespace(t)
}

// loadBenchImage builds the image of the bench's pods and loads it into the nodes, once.
func loadBenchImage(t *testing.T) {
	t.Helper()
	loadImage(t, benchImage)
}

var benchImage = sync.OnceValues(func() (archive string, err error) {
	dir := filepath.Dir(externalLab)
	build := exec.Command("make", "--no-print-directory", "image-bench", "BIN="+dir)
	build.Dir = "../../.."
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", build, err, output)
	}
	return filepath.Join(dir, "beeline-bench.tar"), nil
})

// benchCommand is a bench on this cluster with short samples that keeps every round: the machine is busy.
func benchCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	return cluster.Command(t.Context(), externalLab, append([]string{
		"bench", "--kubeconfig=" + cluster.Kubeconfig(), "--duration=300ms", "--max-foreign=100", "--max-steal=100",
	}, args...)...)
}

// wantMeasured wants a figure for every path, and a description of the cluster.
func wantMeasured(t *testing.T, dir string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, result.FileName))
	if err != nil {
		t.Fatal(err)
	}
	var run result.Run
	if err := json.Unmarshal(content, &run); err != nil {
		t.Fatal(err)
	}
	if run.Cluster == nil {
		t.Fatal("the result does not describe the cluster")
	}
	if bed, is := onTestbed(); is && (!strings.EqualFold(run.Cluster.CNI, bed.Options.Network) || run.Cluster.KubeProxy != bed.Options.Proxy) {
		t.Errorf("the cluster is described as %+v; its network is %s and kube-proxy's mode %s", run.Cluster, bed.Options.Network, bed.Options.Proxy)
	}
	measured := map[string]bool{}
	for _, s := range run.Samples {
		if s.Error != "" {
			t.Errorf("%s of %s over %s: %s", s.Workload, s.Network, s.Path, s.Error)
		}
		if len(s.Values) > 0 {
			measured[s.Network+" "+string(s.Path)] = true
		}
	}
	for _, way := range []string{"node", "pod", "service", "nodeport"} {
		for _, path := range []result.Path{"cross-node", "same-node"} {
			if !measured[way+" "+string(path)] {
				t.Errorf("%s has no figure over %s", way, path)
			}
		}
	}
}

// wantNoBenchNamespace wants no object of a bench in the cluster, not even a terminating one.
func wantNoBenchNamespace(t *testing.T) {
	t.Helper()
	if left := mustKubectl(t, "get", "namespaces", "-l", benchLabel, "-o", "name"); left != "" {
		t.Errorf("the bench leaves %s", left)
	}
}
