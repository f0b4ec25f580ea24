package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
)

// outputLock keeps the events of several machines apart on standard output.
var outputLock sync.Mutex

// translate reads what init.sh writes and prints test events, with the kernel in the package's name. It returns
// whether the machine said that it is done.
func translate(r io.Reader, version string, w io.Writer) (done bool, err error) {
	var pkg string
	var lines bytes.Buffer
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if words := strings.Fields(line); len(words) > 1 && words[0] == "@vm" {
			switch words[1] {
			case "begin":
				pkg = words[2] + " on Linux " + version
				lines.Reset()
			case "end":
				if err := convert(pkg, &lines, w); err != nil {
					return false, err
				}
				pkg = ""
			case "done":
				done = true
			}
		} else {
			lines.WriteString(line)
		}
		if err == nil {
			continue
		}
		if err != io.EOF {
			return done, fmt.Errorf("read the machine's output: %w", err)
		}
		if pkg != "" { // cut off in the middle
			lines.WriteString("\n\x16FAIL\n")
			return false, convert(pkg, &lines, w)
		}
		return done, nil
	}
}

// convert makes events of the output of one test binary, which ends with a verdict: init.sh sees to that.
// (The byte 0x16 marks lines of the testing package, so that no test can print one by accident.)
func convert(pkg string, output io.Reader, w io.Writer) error {
	cmd := exec.Command("go", "tool", "test2json", "-p", pkg)
	cmd.Stdin = output
	events, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("convert test output of %s: %w", pkg, err)
	}
	_, err = w.Write(events)
	return err
}
