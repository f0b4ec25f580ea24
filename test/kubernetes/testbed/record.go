// Package testbed starts and removes a Kubernetes cluster on this machine, and gives tests access to it.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/beeline-cni/beeline/lab/file"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// record describes a cluster. It is written before anything else of the cluster is made.
type record struct {
	Options plan.Options `json:"options"`
	// Binaries are the directories with the programs.
	Binaries []string  `json:"binaries"`
	Started  time.Time `json:"started"`
	// Instances is the original value of the machine's limit of inotify instances; empty if it is unchanged.
	Instances string `json:"instances"`
	// Ready is false while the cluster starts, and after an interrupted or failed start.
	Ready bool `json:"ready"`
}

func (r record) write() error { return file.WriteJSON(plan.Record, r) }

func readRecord() (r record, err error) {
	err = file.ReadJSON(plan.Record, &r)
	return r, err
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
	if unlock, err = file.LockDir(ctx, plan.RunDir, true); err != nil {
		if r, readErr := readRecord(); readErr == nil && ctx.Err() != nil {
			err = fmt.Errorf("%w (%s)", err, r.who())
		}
		return nil, fmt.Errorf("lock %s: %w", plan.RunDir, err)
	}
	return unlock, nil
}
