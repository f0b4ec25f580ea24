//go:build kubernetes

package smoke

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const (
	// namespace holds everything that the tests make.
	namespace = "smoke"
	// image is what its pods run: test/kubernetes/probe, at /probe.
	image = "localhost/beeline-probe:latest"
)

// The programs that this run builds: the test bed's, the probe that nodes and the world run, and Beeline's command line.
var bedProgram, probeProgram, beelineProgram string

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
		if _, err := kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=60s"); err != nil {
			fmt.Fprintf(os.Stderr, "remove namespace of smoke tests: %v\n", err)
			code = 1
		}
	}()
	return m.Run()
}

// prepare builds the programs, gives the image to the nodes, and makes the namespace anew.
func prepare(dir string) error {
	bedProgram, probeProgram = filepath.Join(dir, "cluster"), filepath.Join(dir, "probe")
	beelineProgram = filepath.Join(dir, "beeline")
	archive := filepath.Join(dir, "probe.tar")
	for _, command := range [][]string{
		{"go", "build", "-o", bedProgram, ".."},
		{"go", "build", "-o", probeProgram, "../probe"},
		{"go", "build", "-o", beelineProgram, "../../../cmd/beeline"},
		{"go", "run", "../../../build/image", "-o", archive, "-name", image, "-entrypoint", "/probe", probeProgram + "=/probe"},
		{bedProgram, "status"},
		{bedProgram, "load", archive},
	} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd, err, said)
		}
	}
	_, err := kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=60s")
	_, made := kubectl("create", "namespace", namespace)
	return errors.Join(err, made)
}
