package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/beeline-cni/beeline/lab/file"
)

// record is lab.json. It is written with Ready false before anything else of the lab is made.
type record struct {
	Options           Options `json:"options"`
	CongestionControl string  `json:"congestionControl"`
	// Ready is false while the lab is being made, or when that was interrupted.
	Ready bool `json:"ready"`
}

func recordPath(lab string) string { return filepath.Join(labDir(lab), "lab.json") }

func (r record) write() error { return file.WriteJSON(recordPath(r.Options.Name), r) }

func readRecord(lab string) (record, error) {
	var r record
	return r, file.ReadJSON(recordPath(lab), &r)
}

// lockPatience is how long a command waits for another one on the same lab.
const lockPatience = 30 * time.Second

// errLocked is what lockDir gives when its patience is at an end.
var errLocked = errors.New("in use by another command")

// lockDir locks a directory of labs. With create it makes a directory that is not there.
func lockDir(ctx context.Context, dir string, create bool) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errLocked)
	defer cancel()
	return file.LockDir(ctx, dir, create)
}

// lockLab locks one lab; its directory exists afterwards.
func lockLab(ctx context.Context, lab string) (unlock func(), err error) {
	unlock, err = lockDir(ctx, labDir(lab), true)
	if err != nil {
		return nil, fmt.Errorf("lock lab %q: %w", lab, err)
	}
	return unlock, nil
}

// lockReady locks a lab that is up; it gives ErrNotUp where there is none. It makes no directory: that would
// look like a lab to one that is taken down at the same time.
func lockReady(ctx context.Context, lab string) (unlock func(), err error) {
	unlock, err = lockDir(ctx, labDir(lab), false)
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
