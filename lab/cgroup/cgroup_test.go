package cgroup_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/cgroup"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// newGroup makes a control group below the root of version 2, with another one in it.
func newGroup(t *testing.T) (upper, lower string) {
	t.Helper()
	testenv.Root(t)
	root, err := testbed.Requirements()
	if err != nil {
		t.Fatal(err)
	}
	upper, err = os.MkdirTemp(root, "beeline-cgroup-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cgroup.Kill(upper), cgroup.Remove(context.Background(), upper)); err != nil {
			t.Error(err)
		}
	})
	lower = filepath.Join(upper, "lower")
	if err := os.Mkdir(lower, 0o755); err != nil {
		t.Fatal(err)
	}
	return upper, lower
}

// sleeper starts a process in a group.
func sleeper(t *testing.T, group string) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := (testbed.Netns{Cgroup: group}).Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

func TestGroupGoesWithItsProcesses(t *testing.T) {
	upper, lower := newGroup(t)
	inUpper, inLower := sleeper(t, upper), sleeper(t, lower)
	for name, c := range map[string]struct {
		read func(string) ([]int, error)
		want []int
	}{
		"of the group": {cgroup.Processes, []int{inUpper}},
		"and below":    {cgroup.ProcessesBelow, []int{inUpper, inLower}},
	} {
		got, err := c.read(upper)
		slices.Sort(got)
		slices.Sort(c.want)
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("processes %s (-want +got): %v\n%s", name, err, d)
		}
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cgroup.Remove(impatient, upper); !errors.Is(err, context.Canceled) {
		t.Errorf("removing a group with processes: %v", err)
	}
	if err := cgroup.Kill(upper); err != nil {
		t.Fatal(err)
	}
	if err := cgroup.Remove(t.Context(), upper); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(upper); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the group is still there: %v", err)
	}
}

func TestNoSuchGroup(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	for name, read := range map[string]func(string) ([]int, error){"of the group": cgroup.Processes, "and below": cgroup.ProcessesBelow} {
		if pids, err := read(none); len(pids) != 0 || err != nil {
			t.Errorf("processes %s: %v, %v", name, pids, err)
		}
	}
	if err := errors.Join(cgroup.Kill(none), cgroup.Remove(t.Context(), none)); err != nil {
		t.Error(err)
	}
}
