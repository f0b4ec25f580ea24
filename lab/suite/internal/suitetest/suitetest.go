// Package suitetest has what the tests of several suites need.
package suitetest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/convergence"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
)

// Main runs tests, or makes this program the client of connections, which is a process in a pod.
func Main(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == convergence.Command {
		if err := convergence.Answer(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// NeedTools ends a test where a tool of the workloads is missing.
func NeedTools(t *testing.T) {
	t.Helper()
	for _, w := range workload.All() {
		if m := w.Missing(); m != "" {
			testenv.Missing(t, m)
		}
	}
}

// NothingLeft looks for what the labs of this process would leave.
func NothingLeft(t *testing.T) {
	t.Helper()
	prefix := fmt.Sprintf("bench%d-", os.Getpid())
	labs, err := testbed.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range labs {
		if strings.HasPrefix(l.Name, prefix) {
			t.Errorf("lab %s is left", l.Name)
		}
	}
	spaces, err := filepath.Glob("/run/netns/bl-" + prefix + "*")
	if err != nil || len(spaces) > 0 {
		t.Errorf("namespaces left: %v, %v", spaces, err)
	}
}

// OpenGate discards nothing, whatever else runs on the machine.
func OpenGate() round.Gate {
	return round.Gate{Steal: math.Inf(1), Foreign: math.Inf(1), Retransmits: math.Inf(1)}
}
