//go:build kubernetes

package smoke

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/beeline-cni/beeline/test/kubernetes/bed"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

const (
	// namespace holds everything that the tests make.
	namespace = "smoke"
	// image is what its pods run: test/kubernetes/probe, at /probe.
	image = "localhost/beeline-probe:latest"
)

// cluster is the one that is up.
var cluster *bed.Bed

// The programs that this run builds, on the nodes: the probe, and Beeline's command line.
const (
	nodeProbe   = "/tmp/smoke/probe"
	nodeBeeline = "/tmp/smoke/beeline"
)

// The same on this machine, and the lab's program.
var worldProbe, worldBeeline, worldLab string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "beeline-smoke-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir); err != nil {
		fmt.Fprintf(os.Stderr, "prepare smoke tests: %v\n", err)
		return 1
	}
	defer func() {
		if _, err := kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout="+patience.String()); err != nil {
			fmt.Fprintf(os.Stderr, "remove namespace of smoke tests: %v\n", err)
			code = 1
		}
	}()
	return m.Run()
}

// prepare builds the programs, gives the image to the nodes, and makes the namespace anew.
func prepare(dir string) error {
	var err error
	if cluster, err = bed.Open(); err != nil {
		return err
	}
	worldProbe, worldBeeline, worldLab = filepath.Join(dir, "probe"), filepath.Join(dir, "beeline"), filepath.Join(dir, "beeline-lab")
	archive, pack := filepath.Join(dir, "probe.tar"), filepath.Join(dir, "pack-image")
	for _, command := range [][]string{
		{"go", "build", "-o", worldProbe, "../probe"},
		{"go", "build", "-o", dir + "/", "../../../cmd/beeline", "../../../cmd/beeline-lab"},
		{"go", "-C", "../../../build/image", "build", "-o", pack, "."},
		{pack, "-o", archive, "-name", image, "-entrypoint", "/probe", worldProbe + "=/probe"},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, said)
		}
	}
	for _, node := range cluster.Cluster.Nodes {
		onDisk := filepath.Join(plan.Disk(node.Name), nodeProbe, "..")
		said, err := exec.Command("install", "-D", "-t", onDisk, worldProbe, worldBeeline).CombinedOutput()
		if err != nil {
			return fmt.Errorf("give programs to node %s: %w\n%s", node.Name, err, said)
		}
	}
	if err := cluster.Load(context.Background(), archive); err != nil {
		return err
	}
	_, err = kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout="+patience.String())
	_, made := kubectl("create", "namespace", namespace)
	return errors.Join(err, made)
}
