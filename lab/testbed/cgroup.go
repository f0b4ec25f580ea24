package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/lab/cgroup"
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

// Processes are the ids of the processes that run on the node and in its pods now.
func (n *Node) Processes() ([]int, error) { return cgroup.ProcessesBelow(n.Cgroup) }

// removeCgroup ends every process in the cgroup and below with SIGKILL and removes the directories. It is
// no error when there is no such cgroup. Membership decides, so no process outside can be hit.
func removeCgroup(ctx context.Context, dir string) error {
	pids, err := cgroup.ProcessesBelow(dir)
	if err != nil {
		return fmt.Errorf("list processes of %s: %w", dir, err)
	}
	if slices.Contains(pids, os.Getpid()) {
		return fmt.Errorf("this command itself runs inside %s: leave the node or pod first", dir)
	}
	if err := cgroup.Kill(dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return cgroup.Remove(ctx, dir)
}
