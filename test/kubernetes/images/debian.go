package images

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

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
	if err := fetch(ctx, work, packages); err != nil {
		// Package lists may be missing or out of date.
		if err := run(ctx, work, "apt-get", "-q", "update"); err != nil {
			return "", err
		}
		if err := fetch(ctx, work, packages); err != nil {
			return "", err
		}
	}
	fresh := filepath.Join(work, "tree")
	if err := unpack(ctx, filepath.Join(work, "archives"), fresh); err != nil {
		return "", err
	}
	return tree, os.Rename(fresh, tree)
}

// fetch downloads the packages with all dependencies: apt runs with an empty list of installed packages.
func fetch(ctx context.Context, work string, packages []string) error {
	if err := os.MkdirAll(filepath.Join(work, "archives/partial"), 0o755); err != nil {
		return err
	}
	status := filepath.Join(work, "status")
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return err
	}
	return run(ctx, work, "apt-get", append([]string{"-q", "-y",
		"-o", "Dir::State::status=" + status, "-o", "Dir::Cache::archives=" + filepath.Join(work, "archives"),
		"-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root",
		"install", "--download-only", "--no-install-recommends"}, packages...)...)
}

// mergedDirs are links into /usr in Debian; packages may still have files in them.
var mergedDirs = []string{"bin", "sbin", "lib", "lib64"}

// unwanted are paths that images do not need, half of the packages' size, and files that images replace.
var unwanted = []string{
	"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian", "usr/share/bug",
	"usr/share/perl*", "usr/share/bash-completion", "usr/share/zoneinfo", "usr/lib/x86_64-linux-gnu/perl*", "usr/lib/x86_64-linux-gnu/libperl*",
	"etc/wgetrc", "usr/bin/perl*", "usr/share/dpkg", "usr/bin/dpkg*", "usr/lib/x86_64-linux-gnu/gconv",
}

// unpack unpacks the archives into a tree.
func unpack(ctx context.Context, archives, tree string) error {
	for _, dir := range mergedDirs {
		if err := os.MkdirAll(filepath.Join(tree, "usr", dir), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+dir, filepath.Join(tree, dir)); err != nil {
			return err
		}
	}
	found, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range found {
		if err := run(ctx, "", "sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -C "$2" --extract --keep-directory-symlink`, "sh", archive, tree); err != nil {
			return err
		}
	}
	for _, pattern := range unwanted {
		paths, err := filepath.Glob(filepath.Join(tree, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs a command. The error contains its output.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := strings.TrimSpace(string(out))
		return fmt.Errorf("%s: %w: %s", name, err, text[max(0, len(text)-2000):])
	}
	return nil
}
