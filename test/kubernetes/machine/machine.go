// Package machine runs a machine of the cluster: namespaces and cgroups whose process 1, boot.sh, keeps the machine's
// services running. Powering it off kills everything in its cgroup.
package machine

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/cgroup"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

//go:embed boot.sh
var bootScript string

// Start starts a machine whose directory has its files, among them services.sh, and whose network namespace exists. The
// programs in the directories of binaries appear in its plan.BinDir. The machine outlives this process.
func Start(name string, binaries []string) error {
	h, err := readHierarchies()
	if err != nil {
		return err
	}
	for _, dir := range []string{plan.LogDir(name), h.group(name)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	script := filepath.Join(plan.Dir(name), "boot.sh")
	if err := os.WriteFile(script, []byte(bootScript), 0o644); err != nil {
		return err
	}
	console, err := os.OpenFile(plan.Log(name, Console), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	v1 := ""
	for mount, options := range h.v1 {
		v1 += mount + " " + options + "\n"
	}
	cmd := exec.Command("sh", script)
	cmd.Env = append(environment, "NAME="+name, "DISK="+plan.Disk(name), "DIR="+plan.Dir(name),
		"BIN="+plan.BinDir, "BINARIES="+strings.Join(binaries, ":"), "CGROUP="+plan.CgroupName, "V1="+v1, "V2="+h.v2)
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	netns := testbed.Netns{Path: plan.NetnsPath(name), Cgroup: h.group(name)}
	if err := netns.Start(cmd); err != nil {
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

// Stop powers off the machine, or without a name all machines. It is no error if none is running.
func Stop(ctx context.Context, name string) error {
	h, err := readHierarchies()
	if err == nil {
		err = h.remove(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("stop machine %s: %w", name, err)
	}
	return nil
}

// ErrStopped is the error for a machine that is not running.
var ErrStopped = errors.New("is not running")

// processes returns the cgroup v2 with the machine's processes that are in no container, and the id of the machine's
// process 1 on the host. It fails with ErrStopped if there is none.
func processes(name string) (group string, first int, err error) {
	h, err := readHierarchies()
	if err != nil {
		return "", 0, err
	}
	group = h.services(name)
	pids, err := cgroup.Processes(group)
	if err != nil {
		return "", 0, err
	}
	for _, pid := range pids {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err == nil && innermostPid(string(status)) == "1" {
			return group, pid, nil
		}
	}
	return "", 0, fmt.Errorf("machine %s %w", name, ErrStopped)
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

// Command makes a command in all namespaces of the machine and in its cgroup v2, to which socket programs are attached.
func Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	group, pid, err := processes(name)
	if err != nil {
		return nil, err
	}
	nsenter := []string{"-c", joinAndRun, group, "nsenter", "--target", strconv.Itoa(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--",
		"/usr/bin/env", "-i"}
	nsenter = append(nsenter, environment...)
	return exec.CommandContext(ctx, "sh", append(nsenter, args...)...), nil
}

// Running reports whether the machine's process 1 exists.
func Running(name string) (bool, error) {
	_, _, err := processes(name)
	if errors.Is(err, ErrStopped) {
		return false, nil
	}
	return err == nil, err
}
