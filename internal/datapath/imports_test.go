package datapath_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// levels are the packages below internal/datapath, each with those that it may import: only packages above it in this list. Tests that
// drive the whole datapath are packages of their own (lb_test, …) and not bound by it.
var levels = []string{
	"bpf", "config", "table", "kernel",
	"conntrack", "nat", "fwd", "lb", "policy", "flow",
	"load", "attach",
	".", // the assembly
	"internal/fixtures", "internal/testmaps", "internal/harness", "internal/netlab",
}

// Imports go down the list only, and no package has more than 40 files.
func TestImportsGoDown(t *testing.T) {
	const module = "github.com/beeline-cni/beeline/internal/datapath"
	files := map[string]int{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		dir := filepath.Dir(path)
		files[dir]++
		level := slices.Index(levels, dir)
		if level < 0 {
			t.Errorf("package %s has no level", dir)
			return nil
		}
		if strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			below, ours := strings.CutPrefix(name, module)
			if !ours {
				continue
			}
			if below = strings.TrimPrefix(below, "/"); below == "" {
				below = "."
			}
			if slices.Index(levels, below) >= level {
				t.Errorf("%s imports %s, which is not below it", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, n := range files {
		if n > 40 {
			t.Errorf("package %s has %d files", dir, n)
		}
	}
}
