package adversary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// labPrefix is the prefix of the names of this run's labs.
var labPrefix = fmt.Sprintf("adv-%d-", os.Getpid())

// buildDir has the binaries of this run.
var buildDir string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (code int) {
	if family := os.Getenv(socketVariable); family != "" {
		return giveSocket(family)
	}
	var err error
	if buildDir, err = os.MkdirTemp("", "beeline-adversary-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(buildDir)
	code = m.Run()
	if os.Geteuid() != 0 {
		return code // no test created a lab
	}
	left, err := removeLeftLabs()
	if err != nil || len(left) > 0 {
		fmt.Fprintf(os.Stderr, "tests leaked labs: %v %v\n", left, err)
		return 1
	}
	return code
}

func removeLeftLabs() (left []string, err error) {
	labs, err := testbed.List()
	for _, l := range labs {
		if strings.HasPrefix(l.Name, labPrefix) {
			left = append(left, l.Name)
			err = errors.Join(err, testbed.Down(context.Background(), l.Name))
		}
	}
	return left, err
}

var build = sync.OnceValues(func() (netlab.Programs, error) { return netlab.Variant("../..", buildDir, netlab.Current) })

// programs are the binaries under test: those in $BEELINE_BIN, or built once per run.
func programs(t *testing.T) netlab.Programs {
	t.Helper()
	testenv.Root(t)
	if dir := os.Getenv("BEELINE_BIN"); dir != "" {
		return netlab.Programs{Dir: dir}
	}
	if _, err := exec.LookPath("go"); err != nil && os.Getenv(netlab.VariantsVariable) == "" {
		testenv.Missing(t, "Go, to build the programs; or set BEELINE_BIN to their directory")
	}
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
