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
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if words := strings.Fields(line); len(words) > 1 && words[0] == "@vm" {
			switch words[1] {
			case "begin":
				if tests, err = convert(words[2]+" on "+machine, w); err != nil {
					return false, err
				}
			case "end":
				if err := tests.end(); err != nil {
					return false, err
				}
				tests = nil
			case "done":
				done = true
			}
		} else if tests != nil {
			if err := tests.write(line); err != nil {
				return false, errors.Join(err, tests.end())
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) {
			return done, fmt.Errorf("read the machine's output: %w", err)
		}
		if tests != nil { // cut off in the middle
			return false, errors.Join(tests.write("\n\x16FAIL\n"), tests.end())
		}
		return done, nil
	}
}

// converter converts the output of one test binary as it arrives, so that events have its times. init.sh ends the output with a verdict.
// The byte 0x16 marks lines of the testing package, so that no test prints one by accident.
type converter struct {
	pkg string
	cmd *exec.Cmd
	in  io.WriteCloser
}

func convert(pkg string, w io.Writer) (*converter, error) {
	cmd := exec.Command("go", "tool", "test2json", "-t", "-p", pkg)
	cmd.Stdout = w
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("convert test output of %s: %w", pkg, err)
	}
	return &converter{pkg, cmd, in}, nil
}

func (c *converter) write(line string) error {
	if _, err := io.WriteString(c.in, line); err != nil {
		return fmt.Errorf("convert test output of %s: %w", c.pkg, err)
	}
	return nil
}

// end waits until all events are written.
func (c *converter) end() error {
	if err := errors.Join(c.in.Close(), c.cmd.Wait()); err != nil {
		return fmt.Errorf("convert test output of %s: %w", c.pkg, err)
	}
	return nil
}
