package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// results copies the synthetic results of package report into a directory of its own.
func results(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../lab/report/testdata/synthetic/results.json")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "results.json"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		want  string // a part of stdout; empty: stdout is empty
		html  bool
	}{
		"both":      {nil, "Ratio to node · cross-node · one-core", true},
		"only html": {[]string{"--html"}, "", true},
		"markdown":  {[]string{"--markdown"}, "| `beeline` ", false},
		"summary":   {[]string{"--summary"}, "| `beeline` ", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := results(t)
			code, stdout, stderr := beelineLab(t, append([]string{"report", dir}, c.flags...)...)
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			if !strings.Contains(stdout, c.want) || c.want == "" && stdout != "" {
				t.Errorf("stdout lacks %q:\n%s", c.want, stdout)
			}
			_, err := os.Stat(filepath.Join(dir, "report.html"))
			if (err == nil) != c.html {
				t.Errorf("report.html written: %t, want %t", err == nil, c.html)
			}
		})
	}
}

func TestReportComparesTwo(t *testing.T) {
	code, stdout, stderr := beelineLab(t, "report", results(t), filepath.Join(results(t), "results.json"))
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if !strings.Contains(stdout, "B ÷ A") || !strings.Contains(stdout, "1.000~") {
		t.Errorf("the same run twice does not compare as equal:\n%s", stdout)
	}
}

func TestReportComparesTwoElsewhere(t *testing.T) {
	a, b := results(t), results(t)
	code, stdout, stderr := beelineLab(t, "report", a, b, "--markdown")
	if code != 0 || !strings.Contains(stdout, "| `beeline` ") || !strings.Contains(stdout, "B ÷ A") {
		t.Errorf("markdown: exit code %d, %s\n%s", code, stderr, stdout)
	}
	code, stdout, stderr = beelineLab(t, "report", a, b, "--html")
	page := filepath.Join(b, "compare.html")
	if code != 0 || stdout != "" || !strings.Contains(stderr, page) {
		t.Errorf("html: exit code %d, %q, %q", code, stdout, stderr)
	}
	if content, err := os.ReadFile(page); err != nil || !strings.Contains(string(content), "How B differs from A") {
		t.Errorf("%s: %v", page, err)
	}
}

func TestReportErrors(t *testing.T) {
	dir := results(t)
	empty := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"report"}, "accepts between 1 and 2 arg(s)"},
		{[]string{"report", empty}, empty + "/results.json: no such file"},
		{[]string{"report", dir, empty}, empty + "/results.json: no such file"},
		{[]string{"report", dir, "--html", "--markdown"}, "none of the others can be"},
		{[]string{"report", dir, dir, "--summary"}, "--summary takes one DIR"},
	} {
		code, _, stderr := beelineLab(t, c.args...)
		if code != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit code %d, %q; want 1, %q", c.args, code, stderr, c.want)
		}
	}
}
