package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// store keeps unpacked Debian packages in the user's cache directory. What is there stays in use: remove the
// directory to get newer kernels. Nothing is installed on this machine.
type store struct{ dir string }

func openStore() (store, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return store{}, err
	}
	dir := filepath.Join(cache, "beeline-vm")
	return store{dir}, os.MkdirAll(dir, 0o755)
}

// get returns the directory that the package is unpacked in.
func (s store) get(ctx context.Context, name, pkg string, prepare func(dir string) error) (string, error) {
	dir := filepath.Join(s.dir, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fmt.Fprintf(os.Stderr, "vm: fetching %s into %s\n", pkg, dir)
	fresh, err := os.MkdirTemp(s.dir, ".fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	tree := filepath.Join(fresh, "tree")
	if err := download(ctx, fresh, tree, pkg); err != nil {
		return "", err
	}
	if err := prepare(tree); err != nil {
		return "", fmt.Errorf("prepare %s: %w", pkg, err)
	}
	if err := os.Rename(tree, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// download fetches the package, or the one that a metapackage depends on, and unpacks it.
func download(ctx context.Context, work, tree, pkg string) error {
	real, err := resolve(ctx, pkg)
	if err != nil {
		// Package lists may be missing or out of date; apt says if refreshing them fails.
		if _, err := output(ctx, work, "apt-get", "-q", "update"); err != nil {
			return err
		}
		if real, err = resolve(ctx, pkg); err != nil {
			return fmt.Errorf("%w (Debian's security updates must be among this machine's package sources)", err)
		}
	}
	if _, err := output(ctx, work, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", real); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(work, "*.deb"))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("download %s: apt-get left %d files", real, len(found))
	}
	_, err = output(ctx, work, "dpkg-deb", "-x", found[0], tree)
	return err
}

var kernelDependency = regexp.MustCompile(`(?m)^Depends: (linux-image-\S+)`)

// resolve follows a kernel's metapackage to the package with the kernel.
func resolve(ctx context.Context, pkg string) (string, error) {
	shown, err := output(ctx, "", "apt-cache", "--no-all-versions", "show", pkg)
	if err != nil {
		return "", fmt.Errorf("find Debian package %s: %w", pkg, err)
	}
	if m := kernelDependency.FindStringSubmatch(shown); m != nil {
		return m[1], nil
	}
	return pkg, nil
}

// output runs a command; its error says what the command said.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
