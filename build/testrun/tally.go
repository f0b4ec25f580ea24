package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// event is one line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output and build-fail
	Test       string // empty in events of a package
	Elapsed    float64
	Output     string
}

// tally counts tests and prints packages as they end. A test with subtests is not counted itself: they are.
type tally struct {
	out io.Writer
	// summary repeats what note printed.
	summary strings.Builder
	// require makes a test fail that skips for another reason than allowedSkip: make test installs all that
	// the tests need, so nothing else can be missing.
	require                 bool
	passed, failed, skipped int
	packages                map[string]*packageRun
	slow                    []slowTest
	// mu guards packages against running, which is asked while events are read.
	mu sync.Mutex
}

// slowTest is a test that took a while, with all its subtests, or one of these.
type slowTest struct {
	name string
	took float64 // seconds
}

// What finish tells of where the time went: at most so many tests, none that took less seconds.
const slowShown, slowFrom = 20, 5

// allowedSkip is the one reason to skip a test where everything is required.
const allowedSkip = "not on this kernel"

// packageRun is a package under test: what its tests printed and how they ended.
type packageRun struct {
	output                  map[string][]string // by test; "" holds what belongs to none
	parents                 map[string]bool
	passed, failed, skipped int
	latest                  string // test that was begun, or gone on with, last
}

func newTally(out io.Writer, require bool) *tally {
	return &tally{out: out, require: require, packages: map[string]*packageRun{}}
}

// note prints a line that belongs into the summary.
func (t *tally) note(format string, args ...any) {
	fmt.Fprintf(io.MultiWriter(t.out, &t.summary), format, args...)
}

// read consumes events until the end of r. Lines that are no events (a broken flag, a panic of the go
// command) are printed as they are.
func (t *tally) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprintf(t.out, "%s", line)
			} else {
				t.take(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
}

func (t *tally) take(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Action == "build-output" {
		fmt.Fprint(t.out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := t.packages[e.Package]
	if p == nil {
		p = &packageRun{output: map[string][]string{}, parents: map[string]bool{}}
		t.packages[e.Package] = p
	}
	switch e.Action {
	case "run", "cont":
		p.latest = e.Test
		if parent, _, sub := cutLast(e.Test); sub {
			p.parents[parent] = true
		}
	case "output":
		p.output[e.Test] = append(p.output[e.Test], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(e, p)
		} else {
			t.endTest(e, p)
		}
	}
}

func (t *tally) endTest(e event, p *packageRun) {
	output := strings.Join(p.output[e.Test], "")
	delete(p.output, e.Test)
	counts := !p.parents[e.Test]
	if strings.Count(e.Test, "/") <= 1 && e.Elapsed >= slowFrom {
		t.slow = append(t.slow, slowTest{short(e.Package) + " " + e.Test, e.Elapsed})
	}
	switch e.Action {
	case "pass":
		if counts {
			p.passed++
		}
	case "skip":
		said := reason(output)
		if t.require && !strings.Contains(said, allowedSkip) {
			p.failed++
			t.note("FAIL  %s %s skips, which only %q excuses: %s\n", short(e.Package), e.Test, allowedSkip, said)
			return
		}
		if counts {
			p.skipped++
		}
		t.note("skip  %s %s: %s\n", short(e.Package), e.Test, said)
	case "fail":
		// A parent fails because of its subtests, or by itself; the latter must not be lost.
		if counts || p.failed == 0 {
			p.failed++
			fmt.Fprintf(&t.summary, "FAIL  %s %s\n", short(e.Package), e.Test) // the output names it
			for _, line := range firstLines(output) {
				fmt.Fprintf(&t.summary, "      %s\n", line)
			}
		}
		fmt.Fprint(t.out, output)
	}
}

func (t *tally) endPackage(e event, p *packageRun) {
	if e.Action == "fail" {
		if p.failed == 0 {
			p.failed++ // it did not build, panicked, or ran out of time
		}
		for _, lines := range p.output {
			fmt.Fprint(t.out, strings.Join(lines, ""))
		}
	}
	if p.passed+p.failed+p.skipped > 0 {
		word := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "none"}[e.Action]
		t.note("%-5s %-42s %6.1fs  %d passed, %d failed, %d skipped\n",
			word, short(e.Package), e.Elapsed, p.passed, p.failed, p.skipped)
	}
	t.passed += p.passed
	t.failed += p.failed
	t.skipped += p.skipped
	delete(t.packages, e.Package)
}

// running names the packages that have begun and not ended, each with the test that was heard of last and how many have ended.
func (t *tally) running() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []string
	for name, p := range t.packages {
		all = append(all, fmt.Sprintf(", %s %s (%d tests have ended)", short(name), p.latest, p.passed+p.failed+p.skipped))
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// finish counts what never ended, as after a crash, and prints the slowest tests and the last line.
func (t *tally) finish() {
	for name := range t.packages {
		t.failed++
		t.note("FAIL  %s did not end\n", short(name))
	}
	slices.SortFunc(t.slow, func(a, b slowTest) int { return cmp.Compare(b.took, a.took) })
	for _, s := range t.slow[:min(slowShown, len(t.slow))] {
		t.note("slow  %6.1fs  %s\n", s.took, s.name)
	}
	t.note("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
}

func short(importPath string) string {
	return strings.TrimPrefix(importPath, "github.com/beeline-cni/beeline/")
}

// cutLast cuts a test's name before its last slash.
func cutLast(name string) (parent, child string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// firstLines are the first few that a failed test said itself: what is read of a log of which only the end is kept.
func firstLines(output string) (said []string) {
	const enough, longest = 4, 400
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if len(said) < enough && saidByTest.MatchString(line) {
			said = append(said, line[:min(len(line), longest)])
		}
	}
	return said
}

// saidByTest matches what the testing package puts before the first line of what a test says.
var saidByTest = regexp.MustCompile(`^[a-z0-9_]+_test\.go:[0-9]+: `)

// reason finds what a skipped test said: its last line that the testing package did not frame.
func reason(output string) string {
	said := "no reason given"
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			said = line
		}
	}
	return said
}
