// Command conformance runs Kubernetes' own sig-network tests on the cluster under test: Conformance, NetworkPolicy,
// dual stack, or more tests of Services. Each listed test must pass, except those of missing kernel features. An empty
// run and a test that skips itself are failures. It prints `go test -json` events; build/gotestsum.sh sums them up.
//
//	build/gotestsum.sh conformance 'go run ./test/kubernetes/conformance [-tests conformance|netpol|dualstack|services] [-out DIR]'
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/beeline-cni/beeline/test/kubernetes/testcluster"
	"github.com/beeline-cni/beeline/test/program"
)

// processes is the number of parallel tests. They mostly wait for pods, so two CPUs suffice.
const processes = 8

func main() { program.Main("conformance", run) }

func run(ctx context.Context, args []string) error {
	known := slices.Sorted(maps.Keys(selections))
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	tests := flags.String("tests", "conformance", "which tests to run: "+strings.Join(known, ", "))
	out := flags.String("out", "bin/conformance", "`directory` for upstream's reports and log")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, there := selections[*tests]
	if !there {
		return fmt.Errorf("-tests: %q is none of %s", *tests, strings.Join(known, ", "))
	}
	dir, err := filepath.Abs(*out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cluster, err := testcluster.Open()
	if err != nil {
		return err
	}
	listed, err := list(ctx, cluster, chosen, dir)
	if err != nil {
		return fmt.Errorf("list upstream's tests: %w", err)
	}
	sctp := haveSCTP()
	lacking, err := chosen.lacking(listed, sctp)
	if err != nil {
		return err
	}
	ran, runErr := runTests(ctx, cluster, chosen.here(sctp), dir)
	verdicts := evaluate(listed, ran, lacking)
	if emit(os.Stdout, verdicts) {
		return errors.New("tests failed")
	}
	return runErr // ginkgo may fail although no test did
}

// list lists the selected tests without running any.
func list(ctx context.Context, cluster testcluster.Cluster, chosen selection, dir string) ([]spec, error) {
	report := filepath.Join(dir, "listed.json")
	args := []string{"--provider=skeleton", "--ginkgo.dry-run", "--ginkgo.succinct", "--ginkgo.no-color", "--ginkgo.json-report=" + report}
	cmd := cluster.Command(ctx, "e2e.test", append(args, chosen.flags("--ginkgo.")...)...)
	if err := logged(cmd, filepath.Join(dir, "list.log")); err != nil {
		return nil, err
	}
	return readReport(report)
}

// runTests runs the tests. The report is valid even if it returns an error.
func runTests(ctx context.Context, cluster testcluster.Cluster, chosen selection, dir string) ([]spec, error) {
	const report = "ran.json"
	nodes, err := cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	// ginkgo needs the program's path, which only the cluster's PATH has. Only the first process counts the nodes
	// itself; in the others, tests that need two nodes would skip themselves.
	command := fmt.Sprintf(`exec ginkgo "$@" "$(command -v e2e.test)" -- --provider=skeleton --num-nodes=%d`, len(nodes))
	args := []string{"-c", command, "ginkgo", fmt.Sprintf("--procs=%d", processes),
		"--no-color", "--silence-skips", "--output-dir=" + dir, "--json-report=" + report}
	cmd := cluster.Command(ctx, "sh", append(args, chosen.flags("--")...)...)
	runErr := logged(cmd, filepath.Join(dir, "run.log"))
	ran, err := readReport(filepath.Join(dir, report))
	if runErr != nil {
		return ran, runErr
	}
	return ran, err
}

// logged runs a command with its output in a file.
func logged(cmd *exec.Cmd, log string) error {
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // upstream cleans up after itself
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w, see %s", cmd.Args[0], err, log)
	}
	return nil
}
