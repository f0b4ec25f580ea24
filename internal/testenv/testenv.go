// Package testenv says what a test needs of the machine. With BEELINE_REQUIRE=1, as `make test` and CI
// set it, a missing requirement fails the test instead of skipping it: a green run has run everything.
package testenv

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/containernetworking/plugins/pkg/testutils"
	"golang.org/x/sys/unix"
)

// Root skips the test (or fails it, see the package comment) unless it runs as root.
func Root(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		Missing(tb, "needs root")
	}
}

// notOnThisKernel begins the reasons that excuse a skip everywhere.
const notOnThisKernel = "not on this kernel: "

// Missing skips the test. With BEELINE_REQUIRE=1 it fails the test, unless the reason begins with "not on this kernel: ".
// No other code skips tests; the linter sees to it.
func Missing(tb testing.TB, reason string) {
	tb.Helper()
	if os.Getenv("BEELINE_REQUIRE") == "1" && !strings.HasPrefix(reason, notOnThisKernel) {
		tb.Fatalf("BEELINE_REQUIRE=1 and the test cannot run: %s", reason)
	}
	tb.Skip(reason)
}

// NewNetns makes a network namespace that goes with the test. It needs root, see Root.
func NewNetns(tb testing.TB) ns.NetNS {
	tb.Helper()
	Root(tb)
	made, err := testutils.NewNS()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		made.Close()
		// An error says that the test has removed it itself.
		_ = RemoveNetns(made.Path())
	})
	return made
}

// RemoveNetns takes a network namespace from its path, as container runtimes do it: lazily, because others hold it for a moment. An agent that
// looks for a pod's namespace opens all that are mounted on the machine, and a program that is being started holds what this process has open.
func RemoveNetns(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil {
		err = fmt.Errorf("unmount network namespace %s: %w", path, err)
	}
	return errors.Join(err, os.Remove(path))
}
