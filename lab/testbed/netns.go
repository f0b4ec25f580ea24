package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
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

// Process is a process in a namespace.
type Process struct {
	Cmd *exec.Cmd
	// Ended is closed when the process has ended.
	Ended chan struct{}
	// Err is the result of Wait; read it after Ended is closed.
	Err error
}

// Background starts cmd in the namespace and waits for its end in the background.
func (n Netns) Background(cmd *exec.Cmd) (*Process, error) {
	if err := n.Start(cmd); err != nil {
		return nil, err
	}
	p := &Process{Cmd: cmd, Ended: make(chan struct{})}
	go func() {
		p.Err = cmd.Wait()
		close(p.Ended)
	}()
	return p, nil
}

// Kill stops the process with SIGKILL.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Ended
}

// Terminate stops the process with SIGTERM and returns the result of Wait.
func (p *Process) Terminate() error {
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.Ended
	return p.Err
}

// Output runs a command in the namespace and returns its standard output. The error names the command and holds
// what it wrote to standard error.
func (n Netns) Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	return n.output(exec.CommandContext(ctx, name, args...))
}

// Input runs a command in the namespace with this standard input. Its error is like that of Output.
func (n Netns) Input(ctx context.Context, input, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	_, err := n.output(cmd)
	return err
}

func (n Netns) output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := n.Run(cmd)
	if err == nil {
		return stdout.Bytes(), nil
	}
	err = fmt.Errorf("run %s: %w", cmd.Args[0], err)
	if said := strings.TrimSpace(stderr.String()); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return stdout.Bytes(), err
}

// Listen listens for TCP connections in the namespace.
func (n Netns) Listen(ctx context.Context, at netip.AddrPort) (listener net.Listener, err error) {
	err = n.Do(func() error {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", at.String())
		return err
	})
	return listener, err
}

// Dial makes a TCP connection from the namespace.
func (n Netns) Dial(ctx context.Context, to netip.AddrPort) (conn net.Conn, err error) {
	err = n.Do(func() error {
		// One address and no fallback: no part of this may run on another thread, which is in another namespace.
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}

// Netlink runs fn with a netlink socket of the namespace, on the calling thread.
func (n Netns) Netlink(fn func(*netlink.Handle) error) error {
	target, err := netns.GetFromPath(n.Path)
	if err != nil {
		return fmt.Errorf("open %s: %w", n.Path, err)
	}
	defer target.Close()
	h, err := netlink.NewHandleAt(target, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", n.Path, err)
	}
	defer h.Close()
	return fn(h)
}

// WriteSysctl sets a sysctl of the namespace; name is its path below /proc/sys, because names of devices may hold dots.
func (n Netns) WriteSysctl(name, value string) error {
	return n.Do(func() error {
		f, err := os.OpenFile(filepath.Join("/proc/sys", name), os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("set sysctl: %w", err)
		}
		defer f.Close()
		if _, err := f.WriteString(value); err != nil {
			return fmt.Errorf("set sysctl %s to %q: %w", name, value, err)
		}
		return nil
	})
}

// ReadSysctl reads a sysctl of the namespace; name is its path below /proc/sys.
func (n Netns) ReadSysctl(name string) (value string, err error) {
	err = n.Do(func() error {
		data, err := os.ReadFile(filepath.Join("/proc/sys", name))
		value = strings.TrimSpace(string(data))
		return err
	})
	return value, err
}

// EnableForwarding makes the namespace forward packets.
func (n Netns) EnableForwarding(ipv6 bool) error {
	if err := n.WriteSysctl("net/ipv4/ip_forward", "1"); err != nil || !ipv6 {
		return err
	}
	return n.WriteSysctl("net/ipv6/conf/all/forwarding", "1")
}

// IPNet is the address with its prefix length in the type that package netlink takes.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
