package build

import (
	"os"
	"regexp"
	"testing"
)

// version gives the version that a go.mod file requires of a module.
func version(t *testing.T, file, module string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (\S+)`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s does not require %s", file, module)
	}
	return string(found[1])
}

// Tools have modules of their own. All modules agree on Go's version, and bpf2go is of the version of the library that loads its objects.
func TestModulesAgree(t *testing.T) {
	for _, module := range []string{"tools", "image", "chart", "portmap"} {
		if got, want := version(t, module+"/go.mod", "go"), version(t, "../go.mod", "go"); got != want {
			t.Errorf("build/%s needs Go %s, want %s", module, got, want)
		}
	}
	const ebpf = "github.com/cilium/ebpf"
	if got, want := version(t, "tools/go.mod", ebpf), version(t, "../go.mod", ebpf); got != want {
		t.Errorf("bpf2go is version %s, want %s as the library", got, want)
	}
}
