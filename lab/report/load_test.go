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
	for name, c := range map[string]struct {
		content string
		want    string
		schema  bool
	}{
		"newer":     {`{"schema": 99, "rounds": "changed"}`, "file has schema 99, this version reads 1", true},
		"zero":      {`{"schema": 0}`, "not a result of beeline-lab bench", false},
		"no schema": {`{"version": "1"}`, "not a result of beeline-lab bench", false},
		"empty":     {"", "unexpected end of JSON input", false},
		"truncated": {`{"schema": 1, "samples": [{`, "unexpected end of JSON input", false},
		"syntax":    {"{\n\"schema\": 1,\n oops\n}", "invalid character 'o'", false},
		"type":      {"{\n\"schema\": 1,\n\"seed\": \"x\"\n}", "string into Go struct field Run.seed", false},
		"no object": {`[]`, "cannot unmarshal array", false},
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
	if _, err := Load(dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), dir+"/results.json") {
		t.Errorf("empty directory: %v", err)
	}
}

func TestLoad(t *testing.T) {
	run, err := Load("testdata/synthetic")
	if err != nil {
		t.Fatal(err)
	}
	if run.Version != "v0.0.0-synthetic" || len(run.Samples) == 0 {
		t.Errorf("version %q, %d samples", run.Version, len(run.Samples))
	}
}
