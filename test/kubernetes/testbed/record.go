// Package testbed starts and ends a Kubernetes cluster on this machine, and is how tests use it.
package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// record is what is written about a cluster before anything else of it is made.
type record struct {
	Options plan.Options `json:"options"`
	// Binaries are the directories with the programs.
	Binaries []string  `json:"binaries"`
	Started  time.Time `json:"started"`
	// Sysctls are the values that settings of the whole machine had before.
	Sysctls map[string]string `json:"sysctls"`
	// Ready is false while the cluster is being made, or when that was interrupted or failed.
	Ready bool `json:"ready"`
}

func (r record) write() error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	next := plan.Record + ".next"
	if err := os.WriteFile(next, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, plan.Record)
}

func readRecord() (record, error) {
	var r record
	data, err := os.ReadFile(plan.Record)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read %s: %w", plan.Record, err)
	}
	return r, nil
}

// up tells whether it is a cluster that can be used: one that was started completely, and of which a machine runs. Whoever ends a session's
// processes ends all machines, and leaves the record.
func (r record) up(running func(machine string) (bool, error)) (bool, error) {
	if !r.Ready {
		return false, nil
	}
	for _, m := range plan.New(r.Options).Machines() {
		if is, err := running(m.Name); is || err != nil {
			return is, err
		}
	}
	return false, nil
}

// who says whose cluster it is.
func (r record) who() string {
	note := r.Options.Note
	if note == "" {
		note = "without a note"
	}
	return fmt.Sprintf("%s, network %s, since %s", note, r.Options.Network, r.Started.Format(time.TimeOnly))
}

// lockPatience is how long a command waits for another one.
const lockPatience = 5 * time.Minute

// errLocked says that another command changes the cluster right now.
var errLocked = errors.New("another command is at work on the cluster")

// lock keeps other commands from changing the cluster, until the returned function is called or this process
// ends. The holder may remove the directory.
func lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errLocked)
	defer cancel()
	for {
		f, err := tryLock()
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", plan.RunDir, err)
		}
		if f != nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			err := context.Cause(ctx)
			if r, readErr := readRecord(); readErr == nil {
				err = fmt.Errorf("%w (%s)", err, r.who())
			}
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tryLock gives nil without an error when the lock is taken, or the directory was removed in between.
func tryLock() (*os.File, error) {
	if err := os.MkdirAll(plan.RunDir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(plan.RunDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, nil
		}
		return nil, err
	}
	held, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if now, err := os.Stat(plan.RunDir); err != nil || !os.SameFile(held, now) {
		f.Close()
		return nil, nil
	}
	return f, nil
}
