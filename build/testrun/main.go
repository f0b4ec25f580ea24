// Command testrun runs commands that print `go test -json` events, one after the other, and makes of them
// what a person reads: a line for each package, the output of what failed, the reason of each skip, and a
// last line that counts: "N passed, N failed, N skipped". It fails if a test failed, if a command failed,
// and if no test passed at all; with BEELINE_REQUIRE=1 also if a test skipped for another reason than the kernel.
//
//	testrun [-summary FILE] -- go test -json ./... -- go run ./test/vm
//
// The summary is what is to be read again when several runs have ended: commands, packages, what failed and how, what was
// skipped and why, which tests took longest, and the last line.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	summary := flags.String("summary", "", "`file` for the summary")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	p := newPulse()
	stdout, stderr = p.through(stdout), p.through(stderr)
	t := newTally(stdout, os.Getenv("BEELINE_REQUIRE") == "1")
	broken := false
	for _, command := range split(flags.Args()) {
		t.note("$ %s\n", strings.Join(command, " "))
		begin := time.Now()
		stop := p.beat(stdout, silence, func() string {
			return fmt.Sprintf("...   %s for %s%s", strings.Join(command[:min(len(command), 3)], " "), time.Since(begin).Round(time.Second), t.running())
		})
		err := execute(command, t, stderr)
		stop()
		if err != nil {
			// Usually a failed test, which is counted; a command that could not even run counts here.
			t.note("%s: %v\n", command[0], err)
			broken = true
		}
	}
	t.finish()
	if *summary != "" {
		if err := writeSummary(*summary, t.summary.String()); err != nil {
			fmt.Fprintf(stderr, "testrun: %v\n", err)
			broken = true
		}
	}
	if broken || t.failed > 0 || t.passed == 0 {
		return 1
	}
	return 0
}

// silence is how long nothing is printed at most, with what it takes to notice.
const silence = 50 * time.Second

func writeSummary(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// split cuts the arguments into commands, each after a "--".
func split(args []string) [][]string {
	var commands [][]string
	for len(args) > 0 {
		end := slices.Index(args, "--")
		if end < 0 {
			end = len(args)
		}
		if end > 0 {
			commands = append(commands, args[:end])
		}
		args = args[min(end+1, len(args)):]
	}
	return commands
}

func execute(command []string, t *tally, stderr io.Writer) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := t.read(events)
	if err := cmd.Wait(); err != nil {
		return err
	}
	return readErr
}
