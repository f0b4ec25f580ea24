// Package cgroup lists the processes of a cgroup, ends them and removes it. A cgroup is given by its directory. What
// starts processes keeps them in one: none can leave it by starting others, so membership says who belongs to a lab or
// a machine.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beeline-cni/beeline/lab/wait"
	"golang.org/x/sys/unix"
)

// Processes are the ids of the processes in a control group, without those in groups below it; none where there is no
// such group.
func Processes(dir string) ([]int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, word := range strings.Fields(string(data)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("read processes of %s: %w", dir, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// ProcessesBelow are those of Processes and of all groups below.
func ProcessesBelow(dir string) (pids []int, err error) {
	groups, err := tree(dir)
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		some, err := Processes(group)
		if err != nil {
			return nil, err
		}
		pids = append(pids, some...)
	}
	return pids, nil
}

// Kill ends every process in a control group of version 2, and below, with SIGKILL. It does not wait for their end, see
// Remove, and it is no error when there is no such group.
func Kill(dir string) error {
	err := os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	if err != nil && !gone(err) {
		return fmt.Errorf("end processes: %w", err)
	}
	return nil
}

// Remove removes a control group of either version and those below, as soon as the last process in them has ended: one
// that was killed stays a member until the kernel has taken it apart. It waits for that as long as ctx lasts. It is no
// error when there is no such group.
func Remove(ctx context.Context, dir string) error {
	for {
		err := removeTree(dir)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
		if wait.For(ctx, 5*time.Millisecond) != nil {
			return fmt.Errorf("remove cgroup: processes do not end: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// removeTree removes the groups, deepest first.
func removeTree(root string) error {
	groups, err := tree(root)
	if err != nil {
		return err
	}
	for _, group := range slices.Backward(groups) {
		if err := unix.Rmdir(group); err != nil && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "rmdir", Path: group, Err: err}
		}
	}
	return nil
}

// tree lists a group and those below it, each before those below it. Groups may go meanwhile.
func tree(root string) (groups []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if gone(err) {
			return nil
		}
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	return groups, err
}

// gone says that a group was removed: before it was opened, or after.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }
