package build

import (
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"github.com/beeline-cni/beeline/a"}
{"Action":"run","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable"}
{"Action":"run","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/one"}
{"Action":"pass","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/one"}
{"Action":"run","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/two"}
{"Action":"output","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/two","Output":"    a_test.go:7: got 1, want 2\n"}
{"Action":"output","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/two","Output":"a dump of everything\n"}
{"Action":"fail","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/two"}
{"Action":"fail","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable"}
{"Action":"run","Package":"github.com/beeline-cni/beeline/a","Test":"TestNetkit"}
{"Action":"output","Package":"github.com/beeline-cni/beeline/a","Test":"TestNetkit","Output":"=== RUN   TestNetkit\n"}
{"Action":"output","Package":"github.com/beeline-cni/beeline/a","Test":"TestNetkit","Output":"    a_test.go:9: not on this kernel: netkit\n"}
{"Action":"output","Package":"github.com/beeline-cni/beeline/a","Test":"TestNetkit","Output":"--- SKIP: TestNetkit (0.00s)\n"}
{"Action":"skip","Package":"github.com/beeline-cni/beeline/a","Test":"TestNetkit"}
{"Action":"fail","Package":"github.com/beeline-cni/beeline/a","Elapsed":1.5}
`

const notBuilt = `{"ImportPath":"b","Action":"build-output","Output":"b.go:1: undefined: x\n"}
{"ImportPath":"b","Action":"build-fail"}
{"Action":"start","Package":"b"}
{"Action":"fail","Package":"b","FailedBuild":"b"}
`

const slow = `{"Action":"run","Package":"d","Test":"TestLong"}
{"Action":"pass","Package":"d","Test":"TestLong","Elapsed":71}
{"Action":"run","Package":"d","Test":"TestShort"}
{"Action":"pass","Package":"d","Test":"TestShort","Elapsed":1}
{"Action":"pass","Package":"d","Elapsed":150}
`

const crashed = `{"Action":"start","Package":"c"}
{"Action":"run","Package":"c","Test":"TestHang"}
`

// run runs gotestsum.sh on commands with those events in a file, whose name they give as EVENTS.
func run(t *testing.T, events string, commands ...string) (output, results string, code int) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "events")
	if err := os.WriteFile(file, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"part"}
	for _, c := range commands {
		args = append(args, strings.ReplaceAll(c, "EVENTS", file))
	}
	cmd := exec.Command("./gotestsum.sh", args...)
	cmd.Env = append(os.Environ(), "TEST_RESULTS="+dir, "HEARTBEAT_SECONDS=1", "GOFLAGS=-buildvcs=false")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), filepath.Join(dir, "part"), cmd.ProcessState.ExitCode()
}

func TestSummary(t *testing.T) {
	for _, test := range []struct {
		name, events string
		commands     []string
		code         int
		want         []string // in the summary
		unwanted     string
	}{
		{"passed", slow, []string{"cat EVENTS"}, 0, []string{"slow: d TestLong 1m11s\n2 passed, 0 failed, 0 skipped\n"}, "TestShort"},
		{"two commands", slow, []string{"cat EVENTS", "true"}, 0, []string{"2 passed, 0 failed, 0 skipped\n"}, "exit code"},
		{"a test fails and its command does not", events, []string{"cat EVENTS"}, 1, []string{
			"=== FAIL: a TestTable/two (0.00s)\n    a_test.go:7: got 1, want 2\n",
			"=== SKIP: a TestNetkit (0.00s)\n    a_test.go:9: not on this kernel: netkit\n",
			"\n1 passed, 2 failed, 1 skipped\n",
		}, "dump"},
		{"a command fails", slow, []string{"false", "cat EVENTS"}, 1, []string{"exit code 1: false\n", "2 passed, 0 failed, 0 skipped\n"}, "exit code 0"},
		{"a command is missing", slow, []string{"cat EVENTS", "/nonexistent"}, 1, []string{"exit code 127: /nonexistent\n"}, "exit code 1:"},
		{"no test runs", "", []string{"true"}, 1, []string{"0 passed, 0 failed, 0 skipped\n"}, "exit code"},
		{"a package does not build", notBuilt, []string{"cat EVENTS"}, 1, []string{"=== FAIL: b", "undefined: x", "0 passed, 1 failed, 0 skipped\n"}, "exit code"},
		{"a package does not end", crashed, []string{"cat EVENTS"}, 1, []string{"=== FAIL: c TestHang", "0 passed, 1 failed, 0 skipped\n"}, "exit code"},
	} {
		t.Run(test.name, func(t *testing.T) {
			output, results, code := run(t, test.events, test.commands...)
			summary, err := os.ReadFile(results + ".txt")
			if err != nil || code != test.code {
				t.Fatalf("exit code %d, want %d (%v):\n%s", code, test.code, err, output)
			}
			for _, want := range test.want {
				if !strings.Contains(string(summary), want) {
					t.Errorf("the summary lacks %q:\n%s", want, summary)
				}
			}
			if strings.Contains(string(summary), test.unwanted) {
				t.Errorf("the summary contains %q:\n%s", test.unwanted, summary)
			}
			if !strings.Contains(output, string(summary)) {
				t.Errorf("the summary is not printed:\n%s", output)
			}
			var junit struct {
				Suites []struct{} `xml:"testsuite"`
			}
			if text, err := os.ReadFile(results + ".xml"); err != nil || xml.Unmarshal(text, &junit) != nil {
				t.Errorf("no JUnit file (%v):\n%s", err, text)
			}
		})
	}
}

// Lines that are not events are printed as they are, and so is what a command writes to standard error.
func TestOtherLines(t *testing.T) {
	output, _, code := run(t, slow+"flag provided but not defined\n", "cat EVENTS", "ls /nonexistent")
	if code != 1 || !strings.Contains(output, "flag provided but not defined") || !strings.Contains(output, "cannot access '/nonexistent'") {
		t.Errorf("exit code %d:\n%s", code, output)
	}
}

func TestHeartbeat(t *testing.T) {
	output, _, _ := run(t, crashed, "cat EVENTS", "sleep 3")
	if want := "... 0 min, running: c TestHang\n"; !strings.Contains(output, want) {
		t.Errorf("no %q in:\n%s", want, output)
	}
}
