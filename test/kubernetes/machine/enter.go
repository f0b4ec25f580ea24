package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// The arguments of program boot for its two stages, each followed by the machine's name.
const (
	// enterStage puts the process into the machine's namespaces and becomes the second stage.
	enterStage = "enter"
	// initStage is the machine's process 1.
	initStage = "init"
)

// Boot is the main function of program boot. It returns only with an error.
func Boot(args []string) error {
	if len(args) == 2 {
		switch args[0] {
		case enterStage:
			return enter(args[1])
		case initStage:
			return supervise(args[1])
		}
	}
	return errors.New("only the cluster's commands run this program")
}

// Start starts a machine whose Spec is written and whose network namespace exists. The machine outlives this process.
func Start(name string) error {
	if _, err := makeDisk(name); err != nil {
		return fmt.Errorf("make disk of machine %s: %w", name, err)
	}
	if err := forgetFailures(name); err != nil {
		return err
	}
	group, err := makeCgroups(name)
	if err != nil {
		return fmt.Errorf("start machine %s: %w", name, err)
	}
	defer group.Close()
	console, err := os.OpenFile(plan.Log(name, Console), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	cmd := exec.Command(plan.BootProgram, enterStage, name)
	cmd.Env = environment
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:      true,
		UseCgroupFD: true,
		CgroupFD:    int(group.Fd()),
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start machine %s: %w", name, err)
	}
	// Reaps the machine's process if this process lives longer.
	go func() { _ = cmd.Wait() }()
	return nil
}

// Console is the name of the log of the machine's process 1.
const Console = "machine"

// environment is the environment of services and commands on a machine. It has no proxy variables, which would also apply
// to connections to pods.
var environment = []string{
	"PATH=" + plan.BinDir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root",
	"LANG=C.UTF-8",
	"CONTAINER_RUNTIME_ENDPOINT=unix:///run/containerd/containerd.sock",
}

// enter is the first stage.
func enter(name string) error {
	// exec keeps the namespaces of this thread.
	runtime.LockOSThread()
	s, err := readSpec(name)
	if err != nil {
		return err
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if err := joinCgroups(name, all); err != nil {
		return err
	}
	network, err := os.Open(plan.NetnsPath(name))
	if err != nil {
		return err
	}
	if err := unix.Setns(int(network.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", plan.Netns(name), err)
	}
	network.Close()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make cgroup namespace: %w", err)
	}
	if err := leaveRoot(name, all); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := makeRoot(s, all); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", plan.BootProgram, unix.Exec(plan.BootProgram, []string{plan.BootProgram, initStage, name}, environment))
}

// Stop powers off the machine. It is no error if it is not running.
func Stop(ctx context.Context, name string) error {
	if err := removeCgroups(ctx, func(h hierarchy) string { return h.of(name) }); err != nil {
		return fmt.Errorf("stop machine %s: %w", name, err)
	}
	return nil
}

// StopAll powers off all machines.
func StopAll(ctx context.Context) error { return removeCgroups(ctx, hierarchy.top) }

// ErrStopped is the error for a machine that is not running.
var ErrStopped = errors.New("is not running")

// pidOne returns the host's process id of the machine's process 1.
func pidOne(name string) (int, error) {
	pids, err := processes(name)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err == nil && innermostPid(string(status)) == "1" {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("machine %s %w", name, ErrStopped)
}

// innermostPid returns a process's id in its own PID namespace, see NSpid in proc_pid_status(5).
func innermostPid(status string) string {
	for line := range strings.Lines(status) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(numbers)
			return fields[len(fields)-1]
		}
	}
	return ""
}

// joinAndRun moves the shell into the cgroup of its first argument, and executes the other arguments.
const joinAndRun = `echo $$ >"$0/cgroup.procs" && exec "$@"`

// Command makes a command in all namespaces of the machine and in its v2 cgroup, to which socket programs are attached.
func Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	pid, err := pidOne(name)
	if err != nil {
		return nil, err
	}
	cgroup, err := commandCgroup(name)
	if err != nil {
		return nil, err
	}
	nsenter := []string{"-c", joinAndRun, cgroup, "nsenter", "--target", strconv.Itoa(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--",
		"/usr/bin/env", "-i"}
	nsenter = append(nsenter, environment...)
	return exec.CommandContext(ctx, "sh", append(nsenter, args...)...), nil
}

// Running reports whether the machine's process 1 exists.
func Running(name string) (bool, error) {
	_, err := pidOne(name)
	if errors.Is(err, ErrStopped) {
		return false, nil
	}
	return err == nil, err
}
