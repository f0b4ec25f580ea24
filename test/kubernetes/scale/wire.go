package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// prepare sets up the node: a BPF file system, and an uplink with the address of node 0 to a wire where all other
// nodes reply.
func prepare(ctx context.Context, dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	// Pods' network namespaces have names in /run, which hides those of the host.
	if err := unix.Mount("run", "/run", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	bpf := filepath.Join(dir, "bpf")
	if err := os.Mkdir(bpf, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("bpf", bpf, "bpf", 0, ""); err != nil {
		return fmt.Errorf("mount a BPF file system: %w", err)
	}
	others, err := startOthers(ctx)
	if err != nil {
		return err
	}
	for _, command := range []string{
		"ip link set lo up",
		"ip link add uplink type veth peer name wire netns " + others,
		"ip address add " + nodeAddress(0).String() + "/" + fmt.Sprint(link) + " dev uplink",
		"ip link set uplink up",
		"nsenter -t " + others + " -n ip link set lo up",
		"nsenter -t " + others + " -n ip link set wire up",
		// The kernel replies for all its own addresses.
		"nsenter -t " + others + " -n ip route add local 10.200.0.0/16 dev lo",
	} {
		words := strings.Fields(command)
		if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
	}
	return nil
}

// startOthers creates the network namespace of all other nodes and returns the process that keeps it.
func startOthers(ctx context.Context) (pid string, err error) {
	keeper := exec.CommandContext(ctx, "sleep", "infinity")
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := keeper.Start(); err != nil {
		return "", fmt.Errorf("make a network namespace: %w", err)
	}
	return strconv.Itoa(keeper.Process.Pid), nil
}
