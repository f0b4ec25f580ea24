// Package docs holds documentation only; this test keeps it true.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link   = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)
	target = regexp.MustCompile("(?m)(?:^|`)make ((?:[a-z-]+ ?)+)")
)

// pages are all Markdown files of the project, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "results") {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found[path] = string(content)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("no pages found")
	}
	return found
}

func TestLinksResolve(t *testing.T) {
	for path, content := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
	}
}

func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for path, content := range pages(t) {
		for _, m := range target.FindAllStringSubmatch(content, -1) {
			for _, name := range strings.Fields(m[1]) {
				checked++
				if !regexp.MustCompile(`(?m)^` + name + `:.*## `).Match(makefile) {
					t.Errorf("%s says make %s, which the Makefile does not have", path, name)
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no page mentions a make target: the pattern is wrong")
	}
}
