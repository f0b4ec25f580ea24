package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Every fuzz target of the repository belongs to a part: a target that does not run finds nothing.
func TestEveryFuzzTargetHasAPart(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "grep", "-hE", "^func Fuzz[A-Z]", "--", "*_test.go").Output()
	if err != nil {
		t.Fatalf("look for fuzz targets: %v", err)
	}
	targets := regexp.MustCompile(`func (Fuzz\w+)`).FindAllStringSubmatch(string(out), -1)
	if len(targets) < 5 {
		t.Fatalf("found only %d fuzz targets: %s", len(targets), out)
	}
	for _, target := range targets {
		found := false
		for _, p := range parts {
			found = found || p.fuzz > 0 && p.tests == "^"+target[1]+"$"
		}
		if !found {
			t.Errorf("no part runs %s", target[1])
		}
	}
}

// Every pattern matches tests that are there: a part whose tests were renamed passes without running any.
func TestPartsNameTests(t *testing.T) {
	for _, p := range parts {
		for _, name := range regexp.MustCompile(`\w+`).FindAllString(p.tests, -1) {
			if name == "Test" {
				continue // all tests
			}
			dir := strings.TrimSuffix(strings.TrimPrefix(p.packages[0], "./"), "/...")
			if err := exec.Command("git", "-C", "../..", "grep", "-q", "^func "+name+"(", "--", dir).Run(); err != nil {
				t.Errorf("part %s: %s has no %s", p.name, dir, name)
			}
		}
	}
}

// A failed run is told with its seed and what repeats it, its output is kept, and the campaign goes on and fails at the end.
func TestFailureIsReported(t *testing.T) {
	var out strings.Builder
	logs, runs := t.TempDir(), 0
	c := campaign{
		out: &out, logs: logs, random: rand.New(rand.NewPCG(1, 0)), until: time.Now().Add(time.Hour),
		execute: nil,
	}
	c.execute = func(_ context.Context, cmd command) ([]byte, error) {
		if runs++; runs == 3 {
			c.until = time.Now()
		}
		if runs == 2 {
			return []byte("what it printed"), errors.New("exit status 1")
		}
		return nil, nil
	}
	err := c.run(t.Context(), []part{{name: "x", packages: []string{"./x"}, tests: "^TestX$"}})
	if !errors.Is(err, errFailed) {
		t.Errorf("got error %v, want %v", err, errFailed)
	}
	if runs != 3 {
		t.Errorf("got %d runs, want 3", runs)
	}
	for _, want := range []string{"FAIL  x", "repeat: BEELINE_REQUIRE=1 BEELINE_SEED=", "go test -count 1", "2 passed, 1 failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	kept, err := filepath.Glob(logs + "/x-*.log")
	if err != nil || len(kept) != 1 {
		t.Fatalf("got logs %v (%v), want one", kept, err)
	}
	if text, err := os.ReadFile(kept[0]); err != nil || string(text) != "what it printed" {
		t.Errorf("got log %q (%v)", text, err)
	}
}

// That a fuzz target's time was over is no failure; what the fuzzer has found is one.
func TestOnlyOutOfTime(t *testing.T) {
	const over = "fuzz: elapsed: 2m0s, execs: 32559 (0/sec)\n--- FAIL: FuzzTables (120.20s)\n    context deadline exceeded\nFAIL\nexit status 1\n"
	for output, want := range map[string]bool{
		over: true,
		"--- FAIL: FuzzTables (3.00s)\n    --- FAIL: FuzzTables (0.00s)\n        tables_test.go:1: context deadline exceeded\n\n    Failing input written to testdata/fuzz/FuzzTables/1\nFAIL\n": false,
		over + "Failing input written to testdata/fuzz/FuzzTables/1":                                                  false,
		"--- FAIL: FuzzPrograms (13.91s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n": false,
	} {
		if got := onlyOutOfTime([]byte(output)); got != want {
			t.Errorf("got %t for:\n%s", got, output)
		}
	}
}

// What is asked for and is not there is an error that names what is.
func TestSelectParts(t *testing.T) {
	if _, err := selectParts(parts, "nonesuch"); err == nil || !strings.Contains(err.Error(), "oracle") {
		t.Errorf("got %v, want an error that names the parts", err)
	}
	chosen, err := selectParts(parts, "^fuzz-")
	if err != nil || len(chosen) < 5 {
		t.Errorf("got %d parts, %v", len(chosen), err)
	}
}
