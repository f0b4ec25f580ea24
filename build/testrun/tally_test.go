package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const stream = `{"Action":"start","Package":"github.com/beeline-cni/beeline/a"}
{"Action":"run","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable"}
{"Action":"run","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/one"}
{"Action":"pass","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/one"}
{"Action":"run","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/two"}
{"Action":"output","Package":"github.com/beeline-cni/beeline/a","Test":"TestTable/two","Output":"    a_test.go:7: got 1, want 2\n"}
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

const slow = `{"Action":"pass","Package":"d","Test":"TestLong/sub","Elapsed":70}
{"Action":"pass","Package":"d","Test":"TestLong","Elapsed":71}
{"Action":"pass","Package":"d","Test":"TestLonger","Elapsed":72.5}
{"Action":"pass","Package":"d","Test":"TestShort","Elapsed":1}
{"Action":"pass","Package":"d","Elapsed":150}
`

const crashed = `{"Action":"start","Package":"c"}
{"Action":"run","Package":"c","Test":"TestHang"}
`

func TestTally(t *testing.T) {
	for _, test := range []struct {
		name, events string
		require      bool
		want         []string
	}{
		{"leaves are counted", stream, true, []string{
			"a_test.go:7: got 1, want 2",
			"skip  a TestNetkit: a_test.go:9: not on this kernel: netkit",
			"\n1 passed, 1 failed, 1 skipped\n",
		}},
		{"a skip needs an excuse", strings.ReplaceAll(stream, "not on this kernel: netkit", "no time"), true, []string{
			"FAIL  a TestNetkit skips",
			"\n1 passed, 2 failed, 0 skipped\n",
		}},
		{"a skip needs none elsewhere", strings.ReplaceAll(stream, "not on this kernel: netkit", "no time"), false, []string{
			"\n1 passed, 1 failed, 1 skipped\n",
		}},
		{"a package that does not build fails", notBuilt, true, []string{"undefined: x", "\n0 passed, 1 failed, 0 skipped\n"}},
		{"a package that never ends fails", crashed, true, []string{"c did not end", "\n0 passed, 1 failed, 0 skipped\n"}},
		{"slow tests are named", slow, true, []string{"passed, 0 failed, 0 skipped\nslow    72.5s  d TestLonger\nslow    71.0s  d TestLong\nslow    70.0s  d TestLong/sub\n4 passed"}},
		{"other lines are shown", "flag provided but not defined\n", false, []string{"flag provided", "0 passed, 0 failed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			tally := newTally(&out, test.require)
			if err := tally.read(strings.NewReader(test.events)); err != nil {
				t.Fatal(err)
			}
			tally.finish()
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is missing in:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestRunFails(t *testing.T) {
	pass := `{"Action":"run","Package":"p","Test":"T"}
{"Action":"pass","Package":"p","Test":"T"}
{"Action":"pass","Package":"p"}`
	for _, test := range []struct {
		name string
		args []string
		want int
	}{
		{"all passed", []string{"--", "echo", pass}, 0},
		{"two commands", []string{"--", "echo", pass, "--", "true"}, 0},
		{"no test ran", []string{"--", "true"}, 1},
		{"a command failed", []string{"--", "echo", pass, "--", "false"}, 1},
		{"a test failed, the command did not", []string{"--", "echo", strings.ReplaceAll(pass, "pass", "fail")}, 1},
		{"no such command", []string{"--", "echo", pass, "--", "/nonexistent"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			if got := run(test.args, &out, &out); got != test.want {
				t.Errorf("exit code %d, want %d:\n%s", got, test.want, out.String())
			}
		})
	}
}

func TestSummary(t *testing.T) {
	dir := t.TempDir()
	path, events := filepath.Join(dir, "new", "summary.txt"), filepath.Join(dir, "events")
	if err := os.WriteFile(events, []byte(stream), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if got := run([]string{"-summary", path, "--", "cat", events, "--", "false"}, &out, &out); got != 1 {
		t.Errorf("exit code %d, want 1", got)
	}
	summary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"$ cat", "FAIL  a TestTable/two\n", "skip  a TestNetkit: ", "FAIL  a ", "$ false", "exit status 1", "\n1 passed, 1 failed, 1 skipped\n"} {
		if !strings.Contains(string(summary), want) {
			t.Errorf("%q is missing in:\n%s", want, summary)
		}
	}
	if want := "FAIL  a TestTable/two\n      a_test.go:7: got 1, want 2\n"; !strings.Contains(string(summary), want) {
		t.Errorf("the summary does not tell how the test failed:\n%s", summary)
	}
	if strings.Contains(string(summary), "=== RUN") {
		t.Errorf("the whole output of a test is in the summary:\n%s", summary)
	}
}
