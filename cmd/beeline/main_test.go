package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
)

// beeline runs the program with arguments and returns its exit code and output.
func beeline(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = cli.Run(t.Context(), cli.Env{Stdout: &out, Stderr: &errs}, newRootCommand, args)
	return code, out.String(), errs.String()
}

func TestVersion(t *testing.T) {
	if code, stdout, _ := beeline(t, "--version"); code != 0 || stdout != "beeline "+version+"\n" {
		t.Errorf("exit code %d, printed %q", code, stdout)
	}
}

func TestUsageErrors(t *testing.T) {
	socket := (&explainer{}).socket(t)
	for _, c := range []struct{ args, want string }{
		{"stats", `unknown command "stats" for "beeline"`},
		{"policy explin", `unknown command "explin" for "beeline policy"`},
		{"endpoints x", `unexpected argument "x": beeline endpoints takes no arguments`},
		{"services none", `there is no Service "none" on this node`},
		{"services none -o json", `there is no Service "none" on this node`},
		{"services none -n shop", `there is no Service "none" in namespace "shop" on this node`},
		{"policies shop/none", `there is no NetworkPolicy "none" in namespace "shop"`},
		{"policies -o jsonpath=", "--output: jsonpath= needs a template, as in jsonpath={[*].name}"},
		{"flows --port 99999", "--port: 99999 is not from 1 to 65535"},
		{"flows --port 0", "--port: 0 is not from 1 to 65535"},
		{"flows --last many", `--last: "many" is not a valid int`},
		{"flows --last 99999999999999999999", "--last: 99999999999999999999 is out of range"},
	} {
		args := strings.Fields(c.args)
		if !strings.Contains(c.want, "unknown command") {
			args = append(args, "--socket", socket)
		}
		if code, stdout, stderr := beeline(t, args...); code != 1 || stdout != "" || stderr != "beeline: "+c.want+"\n" {
			t.Errorf("beeline %s: exit code %d, printed %q, %q, want %q", c.args, code, stdout, stderr, c.want)
		}
	}
}
