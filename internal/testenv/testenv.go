// Package testenv says what a test needs of the machine. With BEELINE_REQUIRE=1, as `make test` and CI
// set it, a missing requirement fails the test instead of skipping it: a green run has run everything.
package testenv

import (
	"os"
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

// Missing ends the test: as a failure where everything is required, as a skip elsewhere.
func Missing(tb testing.TB, reason string) {
	tb.Helper()
	if os.Getenv("BEELINE_REQUIRE") == "1" {
		tb.Fatalf("BEELINE_REQUIRE=1 and the test cannot run: %s", reason)
	}
	tb.Skip(reason)
}

// NewNetns makes a network namespace that goes with the test, which has to run as root.
func NewNetns(tb testing.TB) ns.NetNS {
	tb.Helper()
	made, err := testutils.NewNS()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		made.Close()
		// Lazily: a program that another test is starting holds every open file of this process for a moment, this one's too. An error says
		// that the test has removed it itself.
		_ = unix.Unmount(made.Path(), unix.MNT_DETACH)
		_ = os.Remove(made.Path())
	})
	return made
}
