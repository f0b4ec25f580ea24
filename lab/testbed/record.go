package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// record is lab.json. It is written with Ready false before anything else of the lab is made.
type record struct {
	Options           Options `json:"options"`
	CongestionControl string  `json:"congestionControl"`
	// Ready is false while the lab is being made, or when that was interrupted.
	Ready bool `json:"ready"`
}

func recordPath(lab string) string { return filepath.Join(labDir(lab), "lab.json") }

func (r record) write() error { return writeJSON(recordPath(r.Options.Name), r) }

func readRecord(lab string) (record, error) {
	var r record
	return r, readJSON(recordPath(lab), &r)
}

// writeJSON replaces the file by rename: readers see the old or the new content, never a part.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	next := path + ".next"
	if err := os.WriteFile(next, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// lockPatience is how long a command waits for another one on the same lab.
const lockPatience = 30 * time.Second

// errLocked is what lockDir gives when its patience is at an end.
var errLocked = errors.New("in use by another command")

// Whether lockDir makes a directory that is not there.
const (
	makeDir     = true
	existingDir = false
)

// lockDir locks a directory against other processes and goroutines until the returned function is called or
// the process ends. The holder may remove the directory.
func lockDir(ctx context.Context, dir string, create bool) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errLocked)
	defer cancel()
	for {
		f, err := tryLockDir(dir, create)
		if err != nil {
			return nil, err
		}
		if f != nil {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tryLockDir returns nil without an error when the lock is taken, or the directory was removed in between.
func tryLockDir(dir string, create bool) (*os.File, error) {
	var f *os.File
	var err error
	if create {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		f, err = os.Open(dir)
	}
	if create && os.IsNotExist(err) { // the last lab took the directory above with it
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
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	held, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if now, err := os.Stat(dir); err != nil || !os.SameFile(held, now) {
		f.Close()
		return nil, nil
	}
	return f, nil
}

// lockLab locks one lab; its directory exists afterwards.
func lockLab(ctx context.Context, lab string) (unlock func(), err error) {
	unlock, err = lockDir(ctx, labDir(lab), makeDir)
	if err != nil {
		return nil, fmt.Errorf("lock lab %q: %w", lab, err)
	}
	return unlock, nil
}

// lockReady locks a lab that is up; it gives ErrNotUp where there is none. It makes no directory: that would
// look like a lab to one that is taken down at the same time.
func lockReady(ctx context.Context, lab string) (unlock func(), err error) {
	unlock, err = lockDir(ctx, labDir(lab), existingDir)
	if os.IsNotExist(err) {
		return nil, fmt.Errorf("lab %q %w", lab, ErrNotUp)
	}
	if err != nil {
		return nil, fmt.Errorf("lock lab %q: %w", lab, err)
	}
	if _, err := readReady(lab); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// ErrNotUp says that there is no lab of that name, or not a whole one.
var ErrNotUp = errors.New("is not up")

func readReady(lab string) (record, error) {
	r, err := readRecord(lab)
	switch {
	case os.IsNotExist(err):
		return r, fmt.Errorf("lab %q %w", lab, ErrNotUp)
	case err != nil:
		return r, fmt.Errorf("lab %q %w: %w", lab, ErrNotUp, err)
	case !r.Ready:
		return r, fmt.Errorf("lab %q %w: it was left half made by a command that was interrupted", lab, ErrNotUp)
	}
	return r, nil
}
