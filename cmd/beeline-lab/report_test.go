package main

import (
	"os"
	"path/filepath"
	"regexp"
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

// --fail-if decides the exit code, and the files say the same.
func TestReportFailIf(t *testing.T) {
	a, b := results(t), results(t)
	content, err := os.ReadFile(filepath.Join(b, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	slower := regexp.MustCompile(`("agentRSSBytes": )\d+`).ReplaceAll(content, []byte("${1}900000000"))
	if err := os.WriteFile(filepath.Join(b, "results.json"), slower, 0o600); err != nil {
		t.Fatal(err)
	}
	out := func(name string) string { return filepath.Join(b, name) }
	files := []string{"--json", out("c.json"), "--junit", out("c.xml"), "--openmetrics", out("c.txt"), "--comment", out("c.md")}
	for name, c := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"met":         {[]string{a, b, "--fail-if", "tcp_crr.ratio<0.9", "--fail-if", "*.ratio>1.1"}, 0, "All checks pass"},
		"not met":     {[]string{a, b, "--fail-if", "agent_memory.value>1.1", "--fail-if", "tcp_crr.ratio<0.9"}, 1, "beeline: agent_memory: "},
		"about none":  {[]string{a, b, "--fail-if", "tcp_rr.ratio<0.9"}, 1, "is about no figure"},
		"one run":     {[]string{a, "--fail-if", "tcp_rr.ratio<0.9"}, 1, "a run with two builds"},
		"wrong":       {[]string{a, b, "--fail-if", "tcp_rr<0.9"}, 1, "--fail-if: condition"},
		"no junit":    {[]string{a, b, "--junit", out("d.xml")}, 1, "--junit needs --fail-if"},
		"unwriteable": {[]string{a, b, "--json", filepath.Join(b, "none", "c.json")}, 1, "none/c.json"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := beelineLab(t, append([]string{"report"}, c.args...)...)
			if code != c.code || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit code %d, want %d, %q in %q", code, c.code, c.stderr, stderr)
			}
		})
	}
	code, _, stderr := beelineLab(t, append([]string{"report", a, b, "--fail-if", "agent_memory.value>1.1"}, files...)...)
	if code != 1 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for name, want := range map[string]string{
		"c.json": `"outcome": "failed"`, "c.xml": `failures="1"`, "c.txt": "beeline_bench_change{", "c.md": "### Bench: 1 check fails of 1",
	} {
		if content, err := os.ReadFile(out(name)); err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s lacks %q: %v\n%s", name, want, err, content)
		}
	}
}
