package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// failureSuffix is the suffix of files beside the logs, which record how often and how a service ended since the start.
const failureSuffix = ".ended"

// recordFailure is called inside the machine.
func recordFailure(service string, times int, why string) error {
	return file.Replace(filepath.Join("/var/log/components", service+failureSuffix), fmt.Appendf(nil, "%d %s\n", times, why))
}

func forgetFailures(name string) error {
	old, err := filepath.Glob(filepath.Join(plan.LogDir(name), "*"+failureSuffix))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// State is the state of a service, or of the machine's process 1.
type State struct {
	Service string
	Running bool
	// Ended is how often it ended since the machine's start, and Why how it ended the last time.
	Ended int
	Why   string
}

// States returns the states of the machine's services in the order of its Spec. It fails with ErrStopped if the machine
// is not running.
func States(name string) ([]State, error) {
	s, err := readSpec(name)
	if err != nil {
		return nil, err
	}
	_, pids, _, err := processes(name)
	if err != nil {
		return nil, err
	}
	var running []string
	for _, pid := range pids {
		arguments, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil {
			program, _, _ := strings.Cut(string(arguments), "\x00")
			running = append(running, filepath.Base(program))
		}
	}
	var states []State
	for _, service := range s.Services {
		state := State{Service: service.Name, Running: slices.Contains(running, service.Args[0])}
		record, err := os.ReadFile(filepath.Join(plan.LogDir(name), service.Name+failureSuffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		times, why, _ := strings.Cut(strings.TrimSpace(string(record)), " ")
		state.Ended, _ = strconv.Atoi(times)
		state.Why = why
		states = append(states, state)
	}
	return states, nil
}
