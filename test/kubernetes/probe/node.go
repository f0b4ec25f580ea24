package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// hostRoot is where pods mount the node's file system.
const hostRoot = "/host"

// runOnNode runs a command of the node: the pod has the host's network and PID namespaces, and its files below
// hostRoot.
func runOnNode(_ context.Context, args []string) error {
	if err := errors.Join(syscall.Chroot(hostRoot), os.Chdir("/")); err != nil {
		return fmt.Errorf("enter the node's file system at %s: %w", hostRoot, err)
	}
	if err := os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, args, os.Environ())
}

// wait keeps a pod running.
func wait(ctx context.Context, _ []string) error {
	<-ctx.Done()
	return nil
}
