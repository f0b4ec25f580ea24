package report

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
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

// rounds is enough for an interval after one round is discarded.
const rounds = 7

// documents are reports of every suite, of a run without intervals, and a comparison.
func documents() map[string]*Document {
	newer := synthetic(rounds)
	faster(newer)
	return map[string]*Document{
		"network": New(synthetic(rounds)), "one-round": New(synthetic(1)), "services": New(servicesRun()), "nodeport": New(nodePortRun()),
		"policy": New(policyRun()), "encryption": New(encryptionRun()), "cluster": New(clusterRun()), "compare": Compare(synthetic(rounds), newer),
	}
}

// rendered is a document in one rendering.
func rendered(t *testing.T, render func(io.Writer) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := render(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// renderings are all renderings of a document, by name.
func renderings(t *testing.T, d *Document) map[string]string {
	t.Helper()
	all := map[string]string{"text": rendered(t, d.Text), "markdown": rendered(t, d.Markdown), "page": rendered(t, d.HTML)}
	checkPage(t, all["page"])
	for name, text := range all {
		for _, bad := range []string{"NaN", "Inf", "%!"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s contains %s:\n%s", name, bad, text)
			}
		}
	}
	return all
}

// unpadded is a rendering with single blanks.
func unpadded(text string) string { return strings.Join(strings.Fields(text), " ") }

// shown checks that every rendering of a document contains the texts.
func shown(t *testing.T, d *Document, want ...string) map[string]string {
	t.Helper()
	all := renderings(t, d)
	for name, text := range all {
		for _, w := range want {
			if !strings.Contains(unpadded(text), w) {
				t.Errorf("%s lacks %q", name, w)
			}
		}
	}
	return all
}

func TestGolden(t *testing.T) {
	for name, d := range documents() {
		t.Run(name, func(t *testing.T) {
			all := renderings(t, d)
			golden(t, name+".txt", []byte(all["text"]))
			if name == "one-round" {
				return
			}
			golden(t, name+".md", []byte(all["markdown"]))
			if name == "network" {
				golden(t, name+".html", withoutStudies(all["page"]))
			}
		})
	}
}

var studies = regexp.MustCompile(`(?s)<section id="published">.*?</section>\n`)

// withoutStudies leaves out what is the same in every report: style, script and the published figures.
func withoutStudies(page string) []byte {
	return studies.ReplaceAll(notMarkup.ReplaceAll([]byte(page), []byte("$1$3")), nil)
}

// A summary has the overview and the targets only.
func TestSummary(t *testing.T) {
	all := documents()
	for name, want := range map[string]string{"network": "**Ratio to node · cross-node · one-core**", "services": "**Targets**"} {
		text := rendered(t, all[name].Summary)
		if !strings.Contains(text, want) || strings.Contains(text, "**Footprint**") || strings.Contains(text, "by the number of Services") {
			t.Errorf("%s", text)
		}
	}
}

// Runs that measured different things have no figure in common, in every rendering.
func TestCompareNothingInCommon(t *testing.T) {
	a, b := synthetic(1), synthetic(1)
	b.Footprints, b.Programs = nil, nil
	for i := range b.Summary {
		b.Summary[i].Placement = result.Free
	}
	for i := range b.Samples {
		b.Samples[i].Placement = result.Free
	}
	shown(t, Compare(a, b), nothingInCommon)
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
