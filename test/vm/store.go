package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
func (s store) get(ctx context.Context, name string, pkg debian, prepare func(dir string) error) (string, error) {
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
	if err := pkg.download(ctx, fresh, tree); err != nil {
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
