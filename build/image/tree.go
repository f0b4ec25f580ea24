package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// source is a file or a directory and its place in the image.
type source struct {
	// from is a path on this machine.
	from string
	// to is an absolute, clean path in the image.
	to string
}

// parseSource reads SRC=DEST. SRC may contain "=", DEST may not.
func parseSource(arg string) (source, error) {
	i := strings.LastIndex(arg, "=")
	if i <= 0 || !path.IsAbs(arg[i+1:]) {
		return source{}, fmt.Errorf("%q is not SRC=DEST with an absolute DEST", arg)
	}
	return source{from: arg[:i], to: path.Clean(arg[i+1:])}, nil
}

// entry is one file, symbolic link or directory of the image.
type entry struct {
	// from is the path of its content; empty for a parent directory that no source provides.
	from string
	info fs.FileInfo
}

// tree is the content of an archive, by clean path without the leading slash.
type tree map[string]entry

// collect lists everything below the sources. Two sources may share directories, but not files.
func collect(sources []source) (tree, error) {
	t := tree{}
	for _, s := range sources {
		err := filepath.WalkDir(s.from, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			below, err := filepath.Rel(s.from, name)
			if err != nil {
				return err
			}
			return t.add(path.Join(s.to, filepath.ToSlash(below)), entry{from: name, info: info})
		})
		if err != nil {
			return nil, fmt.Errorf("collect %s: %w", s.from, err)
		}
	}
	t.addParents()
	return t, nil
}

func (t tree) add(to string, e entry) error {
	if kind := e.info.Mode().Type(); kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink {
		return fmt.Errorf("%s is neither a file, a symbolic link nor a directory", e.from)
	}
	to = strings.TrimPrefix(to, "/")
	if to == "" {
		if !e.info.IsDir() {
			return fmt.Errorf("%s is not a directory and cannot be /", e.from)
		}
		return nil // every image has its root
	}
	if other, there := t[to]; there && !(other.info.IsDir() && e.info.IsDir()) {
		return fmt.Errorf("/%s comes from both %s and %s", to, other.from, e.from)
	}
	t[to] = e
	return nil
}

// addParents adds parent directories that no source provides.
func (t tree) addParents() {
	for _, name := range t.names() {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, there := t[dir]; !there {
				t[dir] = entry{}
			}
		}
	}
}

// names are sorted, so that a directory precedes its content.
func (t tree) names() []string {
	return slices.Sorted(maps.Keys(t))
}

// isDir is also true for parent directories that no source provides.
func (e entry) isDir() bool {
	return e.info == nil || e.info.IsDir()
}

// link is the target of a symbolic link and empty for everything else.
func (e entry) link() (string, error) {
	if e.info == nil || e.info.Mode().Type() != fs.ModeSymlink {
		return "", nil
	}
	return os.Readlink(e.from)
}
