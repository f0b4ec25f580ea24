// Package cleanroot runs the commands of the README as a newcomer does: on a Debian 12 on which nothing is installed that the README does
// not ask for.
package cleanroot

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// labName keeps the test's lab apart from one that a person has up under the default name.
const labName = "t-readme"

// short makes a bench of one round out of the README's, which takes minutes: what is installed and built for it is the same.
const short = "make bench BENCH_FLAGS='--networks=node,beeline,ptp --workloads=tcp_rr,tcp_stream_16k --rounds=1 --duration=100ms --pods=1 --max-foreign=100 --max-steal=100'"

var labCommand = regexp.MustCompile(`bin/beeline-lab (up|add-pod|exec|down)`)

// TestReadme runs the quick start, the bench and the image as the README has them, one after the other, on a system where
// each finds only what the one before has installed.
func TestReadme(t *testing.T) {
	testenv.Root(t)
	r := newRoot(t)
	r.copyTree(t)
	for _, step := range []struct {
		name, script string
		limit        time.Duration
		want         []string
	}{
		{"quick start", quickStart(t), 5 * time.Minute,
			[]string{"3 packets transmitted, 3 received", `Lab "` + labName + `"`}},
		{"image", line(t, "make image "), 5 * time.Minute, nil},
		{"bench", strings.Replace(line(t, "make bench "), "make bench", short, 1), 8 * time.Minute, []string{"report.html", "TCP_RR"}},
	} {
		out := r.run(t, step.script, step.limit)
		for _, want := range step.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in:\n%s", step.name, want, out)
			}
		}
		t.Logf("%s: passed", step.name)
	}
}

// quickStart is the README's block of lab commands, with a lab that this test alone has. What an interrupted run has left of it is taken down.
func quickStart(t *testing.T) string {
	t.Helper()
	script := labCommand.ReplaceAllString(block(t, "beeline-lab up"), "bin/beeline-lab $1 --name "+labName)
	return strings.Replace(script, "bin/beeline-lab up", "bin/beeline-lab down --name "+labName+" || :\nbin/beeline-lab up", 1)
}

// blocks are the shell blocks of the README.
func blocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, b := range strings.Split(string(text), "```sh\n")[1:] {
		b, _, _ = strings.Cut(b, "```")
		list = append(list, b)
	}
	return list
}

// block gives the shell block that has a text.
func block(t *testing.T, with string) string {
	t.Helper()
	for _, b := range blocks(t) {
		if strings.Contains(b, with) {
			return b
		}
	}
	t.Fatalf("the README has no shell block with %q", with)
	return ""
}

// line gives the command line that begins so.
func line(t *testing.T, begins string) string {
	t.Helper()
	for _, b := range blocks(t) {
		for _, l := range strings.Split(b, "\n") {
			if strings.HasPrefix(l+" ", begins) {
				return l
			}
		}
	}
	t.Fatalf("no shell block of the README has a line that begins with %q", begins)
	return ""
}
