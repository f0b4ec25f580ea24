package images

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMatch(t *testing.T) {
	const listed = `localhost/e2e/agnhost:2.63.0
localhost/e2e/agnhost:2.55
localhost/e2e/glibc-dns-testing:2.0.0
localhost/e2e/busybox:1.37.0-1
localhost/build/distroless-iptables:v0.9.6
localhost/k8s/pause:3.10.2
localhost/e2e/perl:5.26
registry.example/elsewhere/nginx:1
`
	want := map[string][]string{
		"agnhost": {"localhost/e2e/agnhost:2.55", "localhost/e2e/agnhost:2.63.0", "localhost/e2e/glibc-dns-testing:2.0.0"},
		"busybox": {"localhost/build/distroless-iptables:v0.9.6", "localhost/e2e/busybox:1.37.0-1"},
		"pause":   {"localhost/k8s/pause:3.10.2"},
		"coredns": {"localhost/k8s/coredns:1.14.7"},
	}
	if d := cmp.Diff(want, match(listed)); d != "" {
		t.Error(d)
	}
}

// TestRecipesAreWhole checks that everything that recipes name exists.
func TestRecipesAreWhole(t *testing.T) {
	for name, i := range recipes {
		if _, ok := packages[i.base]; !ok && i.base != "" {
			t.Errorf("%s: no packages called %s", name, i.base)
		}
		if i.extra != "" && i.extra != pauseProgram && !strings.Contains(extraScript, "\n"+i.extra+")") {
			t.Errorf("%s: no tree called %s", name, i.extra)
		}
		if i.entrypoint == "" && i.cmd == "" {
			t.Errorf("%s does nothing", name)
		}
	}
	for alias, name := range aliases {
		if _, ok := recipes[name]; !ok {
			t.Errorf("alias %s: no image %s", alias, name)
		}
	}
	for name := range essential {
		if _, ok := recipes[name]; !ok {
			t.Errorf("essential image %s has no recipe", name)
		}
	}
}

func TestRecipeTextChanges(t *testing.T) {
	texts := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(recipes)) {
		text := recipes[name].text()
		if other := texts[text]; other != "" {
			t.Errorf("%s and %s have one recipe", name, other)
		}
		texts[text] = name
	}
	changed := recipes["nginx"]
	changed.cmd += " -v"
	if changed.text() == recipes["nginx"].text() {
		t.Error("another command is the same recipe")
	}
}

func TestExtraTree(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tree")
	if err := makeExtra(t.Context(), agnhostFiles, dir, ""); err != nil {
		t.Fatal(err)
	}
	if link, err := os.Readlink(filepath.Join(dir, "agnhost-2")); err != nil || link != "agnhost" {
		t.Errorf("agnhost-2: %s, %v", link, err)
	}
	info, err := os.Stat(filepath.Join(dir, "tmp"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("tmp: %v", info.Mode())
	}
	content, err := os.ReadFile(filepath.Join(dir, "etc/wgetrc"))
	if err != nil || string(content) != "tries = 1\n" {
		t.Errorf("wgetrc: %q, %v", content, err)
	}
}
