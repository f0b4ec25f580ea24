package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/lab/result"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// golden compares got with testdata/name and writes testdata/name.got beside it where they differ.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		if err := os.WriteFile(path+".got", got, 0o644); err != nil {
			t.Error(err)
		}
		t.Errorf("%s differs (see %s.got, or -update):\n%s", path, path, diff)
		return
	}
	os.Remove(path + ".got")
}

func encode(t *testing.T, run *result.Run) []byte {
	t.Helper()
	content, err := json.MarshalIndent(run, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(content, '\n')
}

// The result files are test data made by synthetic. They are files, and not compared with what it makes now,
// because a file of an earlier version must be read and rendered all the same.
func TestSyntheticResults(t *testing.T) {
	for name, rounds := range map[string]int{"synthetic": 8, "one-round": 1} {
		if *update {
			golden(t, name+"/results.json", encode(t, synthetic(rounds)))
		}
		run, err := Load(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if len(run.Rounds) != rounds || run.Environment.Distribution != "Test data, not a measurement" {
			t.Errorf("%s: %d rounds, %q", name, len(run.Rounds), run.Environment.Distribution)
		}
	}
}

func TestMarkdown(t *testing.T) {
	run, err := Load("testdata/synthetic")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Markdown(&out, run); err != nil {
		t.Fatal(err)
	}
	golden(t, "synthetic/table.md", out.Bytes())
}

func TestCompare(t *testing.T) {
	a, err := Load("testdata/synthetic")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load("testdata/synthetic")
	if err != nil {
		t.Fatal(err)
	}
	faster(b)
	var out bytes.Buffer
	if err := Compare(&out, a, b); err != nil {
		t.Fatal(err)
	}
	golden(t, "synthetic/compare.txt", out.Bytes())
	out.Reset()
	if err := CompareMarkdown(&out, a, b); err != nil {
		t.Fatal(err)
	}
	golden(t, "synthetic/compare.md", out.Bytes())
	out.Reset()
	if err := CompareHTML(&out, a, b); err != nil {
		t.Fatal(err)
	}
	checkPage(t, out.Bytes())
	golden(t, "synthetic/compare.html", out.Bytes())
}

// Runs that measured different things compare as nothing, in every rendering.
func TestCompareNothingInCommon(t *testing.T) {
	a, b := synthetic(1), synthetic(1)
	for i := range b.Summary {
		b.Summary[i].Placement = result.Free
	}
	for i := range b.Samples {
		b.Samples[i].Placement = result.Free
	}
	for name, render := range map[string]func(io.Writer, *result.Run, *result.Run) error{"text": Compare, "markdown": CompareMarkdown, "html": CompareHTML} {
		var out bytes.Buffer
		if err := render(&out, a, b); err != nil || !strings.Contains(out.String(), nothingInCommon) {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
}

func TestTable(t *testing.T) {
	for _, name := range []string{"synthetic", "one-round"} {
		t.Run(name, func(t *testing.T) {
			run, err := Load(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := Table(&out, run); err != nil {
				t.Fatal(err)
			}
			golden(t, name+"/table.txt", out.Bytes())
		})
	}
}

// faster turns a run into one of a newer kernel in which beeline's rates are a tenth higher.
func faster(run *result.Run) {
	run.Environment.Kernel = "6.100.0-synthetic"
	for i := range run.Summary {
		s := &run.Summary[i]
		if s.Network != "beeline" || s.Better != "higher" {
			continue
		}
		s.Median *= 1.1
		for _, v := range []*float64{s.Low, s.High, s.Ratio, s.RatioLow, s.RatioHigh} {
			if v != nil {
				*v *= 1.1
			}
		}
	}
}
