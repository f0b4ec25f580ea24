// Package test holds tests of the whole: what a person does with the built programs.
package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// docsLab keeps the test's lab apart from one that a person has up under the default name.
const docsLab = "t-docs"

var labCommand = regexp.MustCompile(`bin/beeline-lab ([a-z-]+)`)

// TestPoliciesInALab runs the block of docs/policy.md that tries a NetworkPolicy in a lab, as it stands there.
func TestPoliciesInALab(t *testing.T) {
	out := runBlock(t, "../docs/policy.md", docsLab, "-ux") // some of its commands fail on purpose
	for _, want := range []string{
		"default/to-b", "1 packets transmitted, 0 received", "ingress_policy in from_wire", "NOT ALLOWED", "1 packets transmitted, 1 received",
	} {
		_, after, ok := strings.Cut(out, want)
		if !ok {
			t.Fatalf("no %q, or not in this order, in:\n%s", want, out)
		}
		out = after
	}
}

// runBlock runs the block of shell commands of a page that brings up a lab, with the lab under this name. It gives all that was written.
func runBlock(t *testing.T, page, lab, options string) string {
	t.Helper()
	testenv.Root(t)
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var script string
	for _, block := range strings.Split(string(text), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, "beeline-lab up") {
			script = block
		}
	}
	if script == "" {
		t.Fatalf("%s has no block with beeline-lab up", page)
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bin")+"/", "../cmd/beeline", "../cmd/beeline-agent", "../cmd/beeline-cni", "../cmd/beeline-lab")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	script = strings.ReplaceAll(script, "make build\n", "")
	if strings.Contains(script, "make ") {
		t.Fatalf("the block makes more than the build:\n%s", script)
	}
	script = labCommand.ReplaceAllString(script, "bin/beeline-lab $1 --name "+lab)
	script = strings.ReplaceAll(script, "beeline-lab status --name "+lab, "beeline-lab status") // shows all labs
	script = strings.ReplaceAll(script, "/run/beeline-lab/default/", "/run/beeline-lab/"+lab+"/")

	t.Cleanup(func() {
		down := exec.Command("bin/beeline-lab", "down", "--name", lab)
		down.Dir = dir
		_ = down.Run() // usually the script has done it, and then this is an error
	})
	run := exec.Command("sh", options, "-c", script)
	run.Dir = dir
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}
