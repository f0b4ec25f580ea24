package report

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
)

func TestLoadNamesWhatIsWrong(t *testing.T) {
	whole, err := os.ReadFile("testdata/synthetic/results.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content string
		want    string
		schema  bool
	}{
		"newer":     {`{"schema": 99, "rounds": "changed"}`, "schema 99, this version reads up to 1; use a newer beeline", true},
		"zero":      {`{"schema": 0}`, "unknown schema: 0", true},
		"no schema": {`{"version": "1"}`, "field schema is missing", false},
		"empty":     {"", "file is empty", false},
		"truncated": {string(whole[:len(whole)/2]), "truncated", false},
		"cut early": {`{"sch`, "truncated", false},
		"syntax":    {"{\n\"schema\": 1,\n oops\n}", "line 3", false},
		"type":      {"{\n\"schema\": 1,\n\"seed\": \"x\"\n}", "line 3: field seed: unexpected string", false},
		"no object": {`[]`, "unexpected array", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, result.FileName), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(dir)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if !strings.Contains(err.Error(), dir) {
				t.Errorf("%v does not name the file", err)
			}
			if errors.Is(err, ErrSchema) != c.schema {
				t.Errorf("errors.Is(%v, ErrSchema) = %t", err, !c.schema)
			}
		})
	}
}

func TestLoadWithoutFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "no results.json in "+dir) {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("missing directory: %v", err)
	}
}

func TestLoadTakesTheFileItself(t *testing.T) {
	run, err := Load("testdata/synthetic/results.json")
	if err != nil {
		t.Fatal(err)
	}
	if run.Version != "v0.0.0-synthetic" || len(run.Samples) == 0 {
		t.Errorf("version %q, %d samples", run.Version, len(run.Samples))
	}
	if dir := Directory("testdata/synthetic/results.json"); dir != "testdata/synthetic" {
		t.Errorf("directory %q", dir)
	}
}
