package kubebuild

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProgramNames(t *testing.T) {
	var names []string
	for _, queue := range queues("1.36.3") {
		for _, m := range queue {
			for _, p := range m.programs {
				names = append(names, p.name())
			}
		}
	}
	want := []string{
		"kubectl", "kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "agnhost", "regression-issue-74839",
		"ginkgo", "e2e.test", "etcd", "containerd", "containerd-shim-runc-v2", "ctr", "coredns",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Error(d)
	}
}

func TestKubernetesVersionIsEverywhere(t *testing.T) {
	m := kubernetesModule("1.35.4")
	if m.version != "v1.35.4" || m.staging != "v0.35.4" {
		t.Errorf("%s, %s", m.version, m.staging)
	}
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.35.4", "-X k8s.io/client-go/pkg/version.gitMinor=35",
	} {
		if !strings.Contains(m.linker, want) {
			t.Errorf("no %s in %s", want, m.linker)
		}
	}
}

func TestModuleEdits(t *testing.T) {
	const gomod = `{
	"Replace": [
		{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
		{"Old": {"Path": "example.com/a", "Version": "v1.0.0"}, "New": {"Path": "../a"}},
		{"Old": {"Path": "example.com/b"}, "New": {"Path": "example.com/fork", "Version": "v1.2.3"}}
	]}`
	for _, c := range []struct {
		name string
		m    module
		want []string
	}{
		{"Kubernetes", module{path: "k8s.io/kubernetes", version: "v1.36.3", staging: "v0.36.3"}, []string{
			"-module=beeline-kubernetes-build", "-require=k8s.io/kubernetes@v1.36.3",
			"-replace=k8s.io/api=k8s.io/api@v0.36.3", "-replace=example.com/a@v1.0.0=example.com/a@v0.36.3",
		}},
		{"another", module{path: "example.com/x", version: "v3.0.0"}, []string{
			"-module=beeline-kubernetes-build", "-require=example.com/x@v3.0.0", "-dropreplace=k8s.io/api", "-dropreplace=example.com/a@v1.0.0",
		}},
	} {
		got, err := moduleEdits(c.m, gomod)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
	if _, err := moduleEdits(module{}, "no JSON"); err == nil {
		t.Error("nonsense is accepted")
	}
}

// TestChangedRecipeBuildsAgain goes through what makes a program in the cache worthless.
func TestChangedRecipeBuildsAgain(t *testing.T) {
	t.Setenv("BEELINE_KUBERNETES_CACHE", t.TempDir())
	c, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	m := kubernetesModule("1.36.3")
	p := m.programs[0]
	if c.has(m, p) {
		t.Fatal("an empty cache has it")
	}
	built := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(built, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.keep(m, p, built); err != nil {
		t.Fatal(err)
	}
	if !c.has(m, p) {
		t.Fatal("not there after it was kept")
	}
	for what, other := range map[string]module{
		"version": {name: m.name, path: m.path, version: "v1.36.4", linker: m.linker, staging: m.staging},
		"linker":  {name: m.name, path: m.path, version: m.version, linker: "-s", staging: m.staging},
		"tags":    {name: m.name, path: m.path, version: m.version, linker: m.linker, staging: m.staging, tags: "x"},
		"main":    {name: m.name, path: m.path, version: m.version, linker: m.linker, staging: m.staging, main: "x"},
	} {
		if c.has(other, p) {
			t.Errorf("another %s is taken for the same", what)
		}
	}
	path, err := c.Path("1.36.3", p.name())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if c.has(m, p) {
		t.Error("a recipe without its program counts")
	}
}

func TestMissing(t *testing.T) {
	t.Setenv("BEELINE_KUBERNETES_CACHE", t.TempDir())
	c, err := OpenCache()
	if err != nil {
		t.Fatal(err)
	}
	rows := missing(c, "1.36.3", func(p program) bool { return slices.Contains([]string{"kubectl", "ctr"}, p.name()) })
	if len(rows) != 2 || len(rows[0]) != 1 || len(rows[1]) != 1 {
		t.Fatalf("rows %v", rows)
	}
	if rows[0][0].programs[0].name() != "kubectl" || rows[1][0].programs[0].name() != "ctr" {
		t.Errorf("rows %v", rows)
	}
	if got := queues("1.36.3"); len(got[0][0].programs) != 10 {
		t.Error("asking has changed the recipes")
	}
	if _, err := c.Path("1.36.3", "nosuch"); err == nil {
		t.Error("there is a path for a program without a recipe")
	}
}

func TestLastLines(t *testing.T) {
	const text = "go: downloading a v1\nfirst\nsecond\ngo: downloading b v1\nthird\n"
	if got := lastLines(text, 2); got != "second\nthird" {
		t.Errorf("%q", got)
	}
	if got := lastLines("", 2); got != "" {
		t.Errorf("%q", got)
	}
}
