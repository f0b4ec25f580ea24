package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
)

// outputLock keeps the events of several machines apart on standard output.
var outputLock sync.Mutex

// translate reads the output of init.sh and writes test events, with the machine in the packages' names. done means that all tests ran.
func translate(r io.Reader, machine string, w io.Writer) (done bool, err error) {
	var tests *converter // of the package that is being tested
	defer func() {
		if tests != nil { // cut off in the middle
			_, cut := io.WriteString(tests.in, "\n\x16FAIL\n")
			done, err = false, errors.Join(err, cut, tests.end())
		}
		if err != nil {
			err = fmt.Errorf("convert the tests' output: %w", err)
		}
	}()
	for in := bufio.NewReader(r); ; {
		line, readErr := in.ReadString('\n')
		if words := strings.Fields(line); len(words) > 1 && words[0] == "@vm" {
			switch words[1] {
			case "begin":
				tests, err = convert(words[2]+" on "+machine, w)
			case "end":
				err = tests.end()
				tests = nil
			case "done":
				done = true
			}
		} else if tests != nil {
			_, err = io.WriteString(tests.in, line)
		}
		if err != nil || errors.Is(readErr, io.EOF) {
			return done, err
		}
		if readErr != nil {
			return done, readErr
		}
	}
}

// converter converts the output of one test binary as it arrives, so that events have its times. init.sh ends the output with a verdict.
// The byte 0x16 marks lines of the testing package, so that no test prints one by accident.
type converter struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func convert(pkg string, w io.Writer) (*converter, error) {
	cmd := exec.Command("go", "tool", "test2json", "-t", "-p", pkg)
	cmd.Stdout = w
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &converter{cmd, in}, cmd.Start()
}

// end waits until all events are written.
func (c *converter) end() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }
