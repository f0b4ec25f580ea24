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

// name keeps the test's lab apart from one that a person has up under the default name.
const name = "t-readme"

var labCommand = regexp.MustCompile(`bin/beeline lab ([a-z-]+)`)

// TestReadmeQuickStart runs the README's block of lab commands, as it stands there.
func TestReadmeQuickStart(t *testing.T) {
	testenv.Root(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var script string
	for _, block := range strings.Split(string(readme), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, "lab up") {
			script = block
		}
	}
	if script == "" {
		t.Fatal("README.md has no block with lab up")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bin")+"/", "../cmd/beeline", "../cmd/beeline-cni")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	script = strings.ReplaceAll(script, "make build\n", "")
	if strings.Contains(script, "make ") {
		t.Fatalf("the block makes more than the build:\n%s", script)
	}
	script = labCommand.ReplaceAllString(script, "bin/beeline lab $1 --name "+name)
	script = strings.ReplaceAll(script, "lab status --name "+name, "lab status") // shows all labs

	t.Cleanup(func() {
		down := exec.Command("bin/beeline", "lab", "down", "--name", name)
		down.Dir = dir
		_ = down.Run() // usually the script has done it, and then this is an error
	})
	run := exec.Command("sh", "-eux", "-c", script)
	run.Dir = dir
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"3 packets transmitted, 3 received", "Lab \"" + name + "\""} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
}
