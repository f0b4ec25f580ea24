package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/report/chart/charttest"
)

// Script and style are not markup.
var notMarkup = regexp.MustCompile(`(?s)(<(script|style)>).*?(</(script|style)>)`)

var drawings = regexp.MustCompile(`(?s)<svg class="chart".*?</svg>`)

// checkPage reads a page as XML, which the templates are, and checks what must hold for every page: elements are closed in
// order, IDs are unique, links lead to an element of the page, texts of charts do not overlap, and nothing is fetched.
func checkPage(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(notMarkup.ReplaceAllString(page, "$1$3")))
	d.Entity = xml.HTMLEntity
	ids, links := map[string]bool{}, []string{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("page is not well-formed: %v", err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "id":
				if ids[a.Value] {
					t.Errorf("id %q stands twice", a.Value)
				}
				ids[a.Value] = true
			case "aria-labelledby":
				links = append(links, strings.Fields(a.Value)...)
			case "href":
				if !strings.HasPrefix(a.Value, "#") {
					t.Errorf("link to elsewhere: %q", a.Value)
				}
				links = append(links, strings.TrimPrefix(a.Value, "#"))
			case "src", "srcset", "data":
				t.Errorf("<%s> fetches %q", e.Name.Local, a.Value)
			}
		}
	}
	for _, l := range links {
		if !ids[l] {
			t.Errorf("nothing has the id %q", l)
		}
	}
	for _, svg := range drawings.FindAllString(page, -1) {
		problems, err := charttest.Overlaps(svg)
		if err != nil {
			t.Error(err)
		}
		for _, p := range problems {
			t.Errorf("%.120s: %s", svg, p)
		}
	}
	for _, outside := range []string{"http://", "https://", "url(", "@import", "ZgotmplZ", "NaN", "%!"} {
		if strings.Contains(page, outside) {
			t.Errorf("page contains %q", outside)
		}
	}
}

func TestPageEscapesWhatTheFileSays(t *testing.T) {
	run := synthetic(6)
	const evil = `<script>alert("1")</script>&`
	run.Environment.Hostname, run.Environment.CPU, run.Version = evil, evil, evil
	for i := range run.Networks {
		if run.Networks[i].Name == "macvlan" {
			run.Networks[i].Name, run.Networks[i].Description = evil, evil
		}
	}
	for i := range run.Workloads {
		run.Workloads[i].Title = evil
	}
	for i := range run.Summary {
		if run.Summary[i].Network == "macvlan" {
			run.Summary[i].Network = evil
		}
	}
	for i := range run.Samples {
		if run.Samples[i].Network == "macvlan" {
			run.Samples[i].Network = evil
		}
	}
	page := rendered(t, New(run).HTML)
	checkPage(t, page)
	if strings.Contains(page, "<script>alert") {
		t.Error("markup of the file went through")
	}
	if !strings.Contains(page, "&lt;script&gt;alert") {
		t.Error("the name is missing")
	}
}

func TestWriteFileReplacesTheReport(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := New(synthetic(2)).WriteFile(filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() < 10_000 || info.Mode().Perm() != 0o644 {
		t.Errorf("report has %d bytes and mode %v", info.Size(), info.Mode())
	}
	if err := New(synthetic(1)).WriteFile(filepath.Join(dir, "nowhere", FileName)); err == nil {
		t.Error("writing into a missing directory succeeded")
	}
}
