package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// labPrefix is the prefix of the names of this run's labs.
var labPrefix = fmt.Sprintf("e2e-%d-", os.Getpid())

// buildDir is where this run's binaries are built.
var buildDir string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// waiting is the number of parallel tests beyond the number of CPUs: tests mostly wait. Tests do not run in parallel that
// need the CPU for their traffic, count events in time, or reuse a server's port: a process that another test is
// starting may hold the closed socket.
const waiting = 3

func runTests(m *testing.M) (code int) {
	var err error
	if buildDir, err = os.MkdirTemp("", "beeline-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(buildDir)
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+waiting)); err != nil { // a later -parallel overrides it
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if os.Geteuid() != 0 {
		return code // no test made a lab
	}
	left, err := removeLeftLabs()
	if err != nil || len(left) > 0 {
		fmt.Fprintf(os.Stderr, "labs left by tests: %v %v\n", left, err)
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

// programs is one build of this project.
type programs = netlab.Programs

// current is the build under test: the one in $BEELINE_BIN, or one made once for this run.
func current(t *testing.T) programs {
	t.Helper()
	testenv.Root(t)
	if dir := os.Getenv("BEELINE_BIN"); dir != "" {
		return programs{Dir: dir}
	}
	return built(t, currentBuild)
}

// newer is another build of the same sources, to upgrade to.
func newer(t *testing.T) programs {
	t.Helper()
	testenv.Root(t)
	return built(t, newerBuild)
}

// otherLayouts is a build whose maps have other layouts of the same size than those of current.
func otherLayouts(t *testing.T) programs {
	t.Helper()
	testenv.Root(t)
	return built(t, otherLayoutsBuild)
}

var (
	currentBuild      = variant(netlab.Current)
	newerBuild        = variant(netlab.Newer)
	otherLayoutsBuild = variant(netlab.OtherLayouts)
)

// variant returns a build that is made once for this run.
func variant(name string) func() (programs, error) {
	return sync.OnceValues(func() (programs, error) { return netlab.Variant(sourceRoot, buildDir, name) })
}

func built(t *testing.T, build func() (programs, error)) programs {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil && os.Getenv(netlab.VariantsVariable) == "" {
		testenv.Missing(t, "no Go to build the programs with; or set BEELINE_BIN to the directory of the programs")
	}
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
