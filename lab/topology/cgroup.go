package topology

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

	"golang.org/x/sys/unix"
)

// cgroupRoot finds where cgroup v2 is mounted: /sys/fs/cgroup, or a directory of it in hybrid mode.
func cgroupRoot() (string, error) {
	mounts, err := readMounts()
	if err != nil {
		return "", err
	}
	for _, m := range mounts {
		if m.fstype == "cgroup2" {
			return m.target, nil
		}
	}
	return "", errors.New("no cgroup2 is mounted: the lab keeps the processes of each node in a cgroup v2 of its own")
}

// podCgroup is the pod's cgroup below the node's, or the node's own where the pod is the node itself.
func podCgroup(n *Node, p *Pod) string {
	if p.Netns == n.Netns {
		return n.Cgroup
	}
	return filepath.Join(n.Cgroup, "pod-"+p.Name)
}

// processes lists the process ids in a cgroup and all below it; none where there is no such cgroup.
func processes(cgroup string) ([]int, error) {
	var pids []int
	err := filepath.WalkDir(cgroup, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return err
		}
		data, err := os.ReadFile(path)
		for _, line := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(line); err == nil {
				pids = append(pids, pid)
			}
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		err = nil
	}
	return pids, err
}

// Processes are the ids of the processes that run on the node and in its pods now.
func (n *Node) Processes() ([]int, error) { return processes(n.Cgroup) }

// removeCgroup ends every process in the cgroup and below with SIGKILL and removes the directories. It is
// no error when there is no such cgroup. Membership decides, so no process outside can be hit.
func removeCgroup(ctx context.Context, cgroup string) error {
	if _, err := os.Stat(cgroup); os.IsNotExist(err) {
		return nil
	}
	pids, err := processes(cgroup)
	if err != nil {
		return fmt.Errorf("list processes of %s: %w", cgroup, err)
	}
	if slices.Contains(pids, os.Getpid()) {
		return fmt.Errorf("this command itself runs inside %s: leave the node or pod first", cgroup)
	}
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.kill"), []byte("1"), 0); err != nil {
		return fmt.Errorf("end processes of %s: %w", cgroup, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := removeCgroupDirs(cgroup)
		if err == nil {
			return nil
		}
		// A killed process stays a member until the kernel has taken it apart.
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("remove cgroup %s: %w", cgroup, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s: processes do not end: %w", cgroup, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// removeCgroupDirs removes the cgroup and those below it, deepest first.
func removeCgroupDirs(cgroup string) error {
	var dirs []string
	err := filepath.WalkDir(cgroup, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
