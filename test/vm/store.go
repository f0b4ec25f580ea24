package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/beeline-cni/beeline/test/program"
)

// store keeps unpacked Debian packages in the user's cache directory. What is there stays in use: remove the
// directory to get newer kernels. Nothing is installed on this machine.
type store struct{ dir string }

// debian is a package of Debian's.
type debian struct {
	// name of the package, or of one that depends on the newest kernel of its kind.
	name string
	// pattern, a regular expression, takes the newest package whose name matches, where nothing depends on it.
	pattern string
	// suite of the archive, where that is not among this machine's package sources.
	suite string
}

//go:embed download.sh
var downloadScript string

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
	fmt.Fprintf(os.Stderr, "vm: fetching Debian package %s%s into %s\n", pkg.name, pkg.pattern, dir)
	fresh, err := os.MkdirTemp(s.dir, ".fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if _, err := output(ctx, fresh, "sh", "-c", downloadScript, "sh", pkg.name, pkg.pattern, pkg.suite); err != nil {
		return "", err
	}
	tree := filepath.Join(fresh, "tree")
	if err := prepare(tree); err != nil {
		return "", fmt.Errorf("prepare %s: %w", name, err)
	}
	if err := os.Rename(tree, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// output runs a command in a directory.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return program.Output(cmd)
}
