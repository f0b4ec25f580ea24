package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// Netns is a network namespace with the cgroup and the CPU of the processes that run in it. The zero value is the
// caller's namespace and cgroup, on any CPU.
type Netns struct {
	// Path of the network namespace; empty for the caller's.
	Path string `json:"netns"`
	// Cgroup is the directory of a cgroup v2; empty for the caller's.
	Cgroup string `json:"cgroup"`
	// cpu is one more than the number of the only CPU; 0 is any.
	cpu int
}

// On returns the same namespace on one CPU.
func (n Netns) On(cpu int) Netns {
	n.cpu = cpu + 1
	return n
}

// Do runs fn in the namespace and on its CPU, not in its cgroup (a cgroup holds processes, not threads). fn runs on a
// locked thread: it must not start goroutines and expect them in the namespace, and must not wait for work of other
// goroutines that call Do on its behalf.
func (n Netns) Do(fn func() error) error {
	pinned := func() error {
		if n.cpu == 0 {
			return fn()
		}
		return onCPU(n.cpu-1, fn)
	}
	if n.Path != "" {
		return ns.WithNetNSPath(n.Path, func(ns.NetNS) error { return pinned() })
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return pinned()
}

// onCPU runs fn with the calling thread, which must be locked, pinned to one CPU.
func onCPU(cpu int, fn func() error) (err error) {
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("read CPU affinity: %w", err)
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	defer func() {
		if back := unix.SchedSetaffinity(0, &before); back != nil {
			err = errors.Join(err, fmt.Errorf("restore CPU affinity: %w", back))
		}
	}()
	return fn()
}

// Start starts cmd in the namespace. The process is born in its cgroup and inherits namespace and CPU from the
// thread that starts it, so no instruction of it runs elsewhere. cmd must not use SysProcAttr.Pdeathsig:
// that would follow the life of the thread, not of this process.
func (n Netns) Start(cmd *exec.Cmd) error {
	if n.Cgroup != "" {
		dir, err := os.OpenFile(n.Cgroup, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return fmt.Errorf("open cgroup: %w", err)
		}
		defer dir.Close()
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.UseCgroupFD = true
		cmd.SysProcAttr.CgroupFD = int(dir.Fd())
	}
	return n.Do(cmd.Start)
}

// Run starts cmd in the namespace and waits for its end.
func (n Netns) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// Output runs a command in the namespace and returns its standard output. The error names the command and holds
// what it wrote to standard error.
func (n Netns) Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := n.Run(cmd); err != nil {
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			return stdout.Bytes(), fmt.Errorf("run %s: %w", name, err)
		}
		return stdout.Bytes(), fmt.Errorf("run %s: %w: %s", name, err, said)
	}
	return stdout.Bytes(), nil
}
