package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// State is the state of a service.
type State struct {
	Service string
	Running bool
	// Ended is how often it ended since the machine's start, and Status its last exit status: 128 and a signal's number if
	// that ended it.
	Ended, Status int
}

// States returns the states of the machine's services that have started, sorted by name. It fails with ErrStopped if the
// machine is not running.
func States(name string) (states []State, err error) {
	if _, _, err := processes(name); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(plan.LogDir(name), "*.state"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		state, word := State{Service: strings.TrimSuffix(filepath.Base(file), ".state")}, ""
		if _, err := fmt.Sscan(string(text), &word, &state.Ended, &state.Status); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		state.Running = word == "running"
		states = append(states, state)
	}
	return states, nil
}
