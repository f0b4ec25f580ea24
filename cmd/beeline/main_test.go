package main

import (
	"bytes"
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

func TestUnknownCommand(t *testing.T) {
	if code, _, stderr := beeline(t, "stats"); code != 1 || stderr != "beeline: unknown command \"stats\" for \"beeline\"\n" {
		t.Errorf("exit code %d, printed %q", code, stderr)
	}
}
