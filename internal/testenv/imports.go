package testenv

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

// ImportsGoDown fails if a package below the test's directory imports one that is not above it in levels. levels names every package below
// the directory ("." is the directory itself), lowest first; module is the import path of the directory. Test files are free: tests may drive
// the whole.
func ImportsGoDown(t *testing.T, module string, levels []string) {
	t.Helper()
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		dir := filepath.Dir(path)
		level := slices.Index(levels, dir)
		if level < 0 && !seen[dir] {
			t.Errorf("package %s has no level", dir)
		}
		seen[dir] = true
		if level < 0 || strings.HasSuffix(path, "_test.go") {
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
			below, ours := strings.CutPrefix(name, module+"/")
			switch {
			case name == module:
				below = "."
			case !ours:
				continue
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
	for _, dir := range levels {
		if !seen[dir] {
			t.Errorf("there is no package %s", dir)
		}
	}
}
