// Package docs holds documentation only; this test keeps it true.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link   = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
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

// TestLinksResolve looks for the file of each link, and for the heading of its anchor.
func TestLinksResolve(t *testing.T) {
	all := pages(t)
	checked := 0
	for path, content := range all {
		for _, m := range link.FindAllStringSubmatch(content, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to := path
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if m[2] == "" {
				continue
			}
			checked++
			if !slices.Contains(anchors(all[to]), m[2]) {
				t.Errorf("%s links to %s, which has no heading #%s", path, to, m[2])
			}
		}
	}
	if checked == 0 {
		t.Error("no link has an anchor: the pattern is wrong")
	}
}

var (
	heading  = regexp.MustCompile(`^#{1,6}\s+(.+?)[\s#]*$`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{M}\p{N}\p{Pc}\- ]`)
)

// anchors gives the anchors of a page's headings as GitHub does: in lower case, without punctuation, with a hyphen for each
// space, and numbered from the second of the same text on.
func anchors(page string) (all []string) {
	seen := map[string]int{}
	code := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		m := heading.FindStringSubmatch(line)
		if code || m == nil {
			continue
		}
		text := strings.ToLower(linkText.ReplaceAllString(m[1], "$1"))
		anchor := strings.ReplaceAll(noAnchor.ReplaceAllString(text, ""), " ", "-")
		seen[anchor]++
		if n := seen[anchor]; n > 1 {
			anchor = fmt.Sprintf("%s-%d", anchor, n-1)
		}
		all = append(all, anchor)
	}
	return all
}

// TestAnchors has the cases of GitHub's rule.
func TestAnchors(t *testing.T) {
	page := "# Two builds\n```sh\n# a comment\n```\n## `make test`, [how](x.md#y)\n## Direct server return (DSR)\n## A – b_c ##\n## Two builds\n"
	want := []string{"two-builds", "make-test-how", "direct-server-return-dsr", "a--b_c", "two-builds-1"}
	if got := anchors(page); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
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
