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

func (r record) write() error {
	if err := file.WriteJSON(recordPath(r.Options.Name), r); err != nil {
		return fmt.Errorf("record lab %q: %w", r.Options.Name, err)
	}
	return nil
}

// ErrNotUp says that there is no lab of that name, or not a whole one.
var ErrNotUp = errors.New("is not up")

// readReady reads the record of a lab that is up. Without one the error is ErrNotUp.
func readReady(lab string) (r record, err error) {
	err = file.ReadJSON(recordPath(lab), &r)
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

// lockPatience is how long a command waits for another one on the same lab.
const lockPatience = 30 * time.Second

// lock locks a lab against other commands. With create its directory exists afterwards.
func lock(ctx context.Context, lab string, create bool) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errors.New("in use by another command"))
	defer cancel()
	if unlock, err = file.LockDir(ctx, labDir(lab), create); err != nil {
		return nil, fmt.Errorf("lock lab %q: %w", lab, err)
	}
	return unlock, nil
}

// lockReady locks a lab that is up. It makes no directory: that would look like a lab to one that is taken down at the
// same time.
func lockReady(ctx context.Context, lab string) (unlock func(), err error) {
	unlock, err = lock(ctx, lab, false)
	if _, notUp := readReady(lab); notUp != nil {
		if err == nil {
			unlock()
		}
		return nil, notUp
	}
	return unlock, err
}
