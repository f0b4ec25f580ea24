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

	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
	"github.com/beeline-cni/beeline/test/kubernetes/testcluster"
)

const (
	// namespace has all objects of the tests.
	namespace = "smoke"
	// nodeProbe and nodeBeeline are the paths of the probe and the beeline command on nodes. This run builds them.
	nodeProbe   = "/tmp/smoke/probe"
	nodeBeeline = "/tmp/smoke/beeline"
)

var (
	cluster testcluster.Cluster
	// worldProbe and worldBeeline are the same programs on this machine, worldLab is the lab's.
	externalProbe, externalBeeline, externalLab string
)

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
		_, err := kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout="+patience.String())
		if remote, is := cluster.(*testcluster.Remote); is {
			err = errors.Join(err, remote.Close())
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "remove namespace of smoke tests: %v\n", err)
			code = 1
		}
	}()
	return m.Run()
}

// prepare builds the programs, copies them and the probe's image to the nodes, and creates the namespace.
func prepare(dir string) error {
	var err error
	if cluster, err = testcluster.Open(); err != nil {
		return err
	}
	externalProbe, externalBeeline, externalLab = filepath.Join(dir, "probe"), filepath.Join(dir, "beeline"), filepath.Join(dir, "beeline-lab")
	archive := filepath.Join(dir, "beeline-probe.tar")
	for _, command := range [][]string{
		{"go", "build", "-o", dir + "/", "../../../cmd/beeline", "../../../cmd/beeline-lab"},
		{"make", "-C", "../../..", "--no-print-directory", "image-probe", "BIN=" + dir},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, output)
		}
	}
	if _, is := cluster.(*testbed.Testbed); is {
		if err := cluster.Load(context.Background(), archive); err != nil {
			return err
		}
	}
	nodes, err := cluster.Nodes(context.Background())
	if err != nil {
		return err
	}
	for _, node := range nodes {
		for from, to := range map[string]string{externalProbe: nodeProbe, externalBeeline: nodeBeeline} {
			program, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			const install = `mkdir -p "${0%/*}" && rm -f "$0" && cat >"$0" && chmod 755 "$0"`
			if _, err := onNode(node).feed(string(program), "sh", "-c", install, to); err != nil {
				return fmt.Errorf("copy %s to node %s: %w", to, node, err)
			}
		}
	}
	_, err = kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout="+patience.String())
	_, made := kubectl("create", "namespace", namespace)
	return errors.Join(err, made)
}
