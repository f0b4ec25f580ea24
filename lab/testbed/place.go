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

// AnyCPU leaves the choice of the CPU to the scheduler.
const AnyCPU = -1

// Place is where a process runs.
type Place struct {
	// Netns is the path of a network namespace; empty for the caller's.
	Netns string
	// CPU is the only one the process may use, or AnyCPU. The zero value is CPU 0.
	CPU int
	// Cgroup is the directory of a cgroup v2; empty for the caller's.
	Cgroup string
}

// On returns the same place on one CPU.
func (p Place) On(cpu int) Place {
	p.CPU = cpu
	return p
}

// Do runs fn in the namespace and on the CPU of the place, not in its cgroup (a cgroup holds processes, not
// threads). fn runs on a locked thread: it must not start goroutines and expect them in the namespace, and
// must not wait for work of other goroutines that call Do on its behalf.
func (p Place) Do(fn func() error) error {
	pinned := func() error {
		if p.CPU == AnyCPU {
			return fn()
		}
		return onCPU(p.CPU, fn)
	}
	if p.Netns != "" {
		return ns.WithNetNSPath(p.Netns, func(ns.NetNS) error { return pinned() })
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

// Start starts cmd in the place. The process is born in its cgroup and inherits namespace and CPU from the
// thread that starts it, so no instruction of it runs elsewhere. cmd must not use SysProcAttr.Pdeathsig:
// that would follow the life of the thread, not of this process.
func (p Place) Start(cmd *exec.Cmd) error {
	if p.Cgroup != "" {
		dir, err := os.OpenFile(p.Cgroup, unix.O_PATH|unix.O_DIRECTORY, 0)
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
	return p.Do(cmd.Start)
}

// Run starts cmd in the place and waits for its end.
func (p Place) Run(cmd *exec.Cmd) error {
	if err := p.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// Output runs a command in the place and gives its standard output. The error names the command and holds
// what it wrote to standard error.
func (p Place) Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := p.Run(cmd); err != nil {
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			return stdout.Bytes(), fmt.Errorf("run %s: %w", name, err)
		}
		return stdout.Bytes(), fmt.Errorf("run %s: %w: %s", name, err, said)
	}
	return stdout.Bytes(), nil
}
