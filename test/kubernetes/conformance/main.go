// Command conformance runs upstream's Conformance tests of sig-network against the cluster of the test bed and judges
// the run: every test that upstream lists has to pass, but for those of exceptions.txt, each with its reason; an empty
// run, a test that skips itself and an exception that is none are failures. It prints what happens as `go test -json`
// does; build/testrun makes that readable.
//
//	go run ./build/testrun -- go run ./test/kubernetes/conformance [-out DIR]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
)

const (
	// focus selects upstream's tests by their names.
	focus = `\[sig-network\].*\[Conformance\]`
	// processes is how many tests run at the same time.
	processes = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "conformance: %v\n", err)
	}
	if failed || err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (failed bool, err error) {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	out := flags.String("out", "", "`directory` that keeps upstream's reports and log; none are kept unless given")
	bed := flags.String("cluster", "bin/cluster", "the test bed's `program`")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	exceptions, err := readExceptions(exceptionsText)
	if err != nil {
		return false, err
	}
	dir := *out
	if dir == "" {
		if dir, err = os.MkdirTemp("", "beeline-conformance-"); err != nil {
			return false, err
		}
		defer os.RemoveAll(dir)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	listed, err := list(ctx, *bed, dir)
	if err != nil {
		return false, fmt.Errorf("list upstream's tests: %w", err)
	}
	ran, runErr := runTests(ctx, *bed, dir)
	verdicts := judge(listed, ran, exceptions)
	failed = emit(os.Stdout, verdicts)
	if !failed && runErr != nil {
		return true, runErr // no test failed: something around them did
	}
	return failed, nil
}

// list asks upstream which tests there are, without running any.
func list(ctx context.Context, bed, dir string) ([]spec, error) {
	report := filepath.Join(dir, "listed.json")
	if err := logged(ctx, filepath.Join(dir, "list.log"), bed, "exec", "e2e.test", "--provider=skeleton",
		"--ginkgo.dry-run", "--ginkgo.silence-skips", "--ginkgo.no-color", "--ginkgo.focus="+focus, "--ginkgo.json-report="+report); err != nil {
		return nil, err
	}
	return readReport(report)
}

// runTests runs the tests. With an error, what is in the report has happened nevertheless.
func runTests(ctx context.Context, bed, dir string) ([]spec, error) {
	const report = "ran.json"
	log := filepath.Join(dir, "run.log")
	runErr := logged(ctx, log, bed, "exec", "sh", "-c", `exec ginkgo "$@" "$(command -v e2e.test)" -- --provider=skeleton`, "ginkgo",
		fmt.Sprintf("--procs=%d", processes), "--no-color", "--silence-skips", "--focus="+focus, "--output-dir="+dir, "--json-report="+report)
	ran, err := readReport(filepath.Join(dir, report))
	if runErr != nil {
		return ran, fmt.Errorf("%w (%s)", runErr, log)
	}
	return ran, err
}

// logged runs a command with its output in a file.
func logged(ctx context.Context, log string, command ...string) error {
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // upstream cleans up after itself
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}
	return nil
}
