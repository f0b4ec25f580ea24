// Package testbed starts and removes a Kubernetes cluster on this machine, and gives tests access to it.
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

// record describes a cluster. It is written before anything else of the cluster is made.
type record struct {
	Options plan.Options `json:"options"`
	// Binaries are the directories with the programs.
	Binaries []string  `json:"binaries"`
	Started  time.Time `json:"started"`
	// Sysctls are the original values of the machine's changed settings.
	Sysctls map[string]string `json:"sysctls"`
	// Ready is false while the cluster starts, and after an interrupted or failed start.
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

// up reports whether the cluster was started completely and a machine runs. After a kill of all machines the record is
// left.
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

// who describes the cluster's user.
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
var errLocked = errors.New("another command changes the cluster")

// lock locks the cluster against other commands until the returned function is called or this process ends. The holder
// may remove the directory.
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

// tryLock returns nil without an error if another process has the lock, or the directory was removed meanwhile.
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
