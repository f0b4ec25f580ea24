package images

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/test/program"
)

//go:embed debian.sh
var debianScript string

// debianTree returns a directory with the packages and their dependencies, unpacked. It makes one for each list of
// packages. It installs nothing on this machine and runs no scripts of packages.
func debianTree(ctx context.Context, dir, name string, packages []string, print func(string, ...any)) (string, error) {
	recipe := sha256.Sum256(fmt.Append(nil, packages, unwanted))
	tree := filepath.Join(dir, fmt.Sprintf("%s-%x", name, recipe[:6]))
	if _, err := os.Stat(tree); err == nil {
		return tree, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	print("fetching Debian packages for images: %s", strings.Join(packages, " "))
	script := append([]string{"unwanted=" + strings.Join(unwanted, " "), "sh", "-c", debianScript, "sh"}, packages...)
	if err := run(ctx, work, "env", script...); err != nil {
		return "", err
	}
	return tree, os.Rename(filepath.Join(work, "tree"), tree)
}

// unwanted are paths that images do not need, half of the packages' size, and files that images replace.
var unwanted = []string{
	"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug",
	"usr/share/perl*", "usr/share/bash-completion", "usr/share/zoneinfo", "usr/lib/x86_64-linux-gnu/perl*", "usr/lib/x86_64-linux-gnu/libperl*",
	"etc/wgetrc", "usr/bin/perl*", "usr/share/dpkg", "usr/bin/dpkg*", "usr/lib/x86_64-linux-gnu/gconv",
}

func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	_, err := program.Output(cmd)
	return err
}
