package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/beeline-cni/beeline/test/kubernetes/machine"
	"github.com/beeline-cni/beeline/test/kubernetes/plan"
)

// Down removes the cluster, also what a crashed command left. It is no error if there is none. With a note, it fails for a
// cluster with another note, and does not change it.
func Down(ctx context.Context, note string) error {
	unlock, err := lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if r, err := readRecord(); err == nil && note != "" && r.Options.Note != note {
		return fmt.Errorf("the cluster has another user (%s): not removed", r.who())
	}
	if err := takeDown(ctx); err != nil {
		return err
	}
	return os.Remove(plan.RunDir)
}

// takeDown does the work of Down with the cluster locked. Each step can be repeated. It removes the record, which has
// the machine's original settings, last, and leaves the locked directory.
func takeDown(ctx context.Context) error {
	if err := machine.Stop(ctx, ""); err != nil {
		return err
	}
	names, err := ourNamespaces(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := run(ctx, "ip", "netns", "delete", name); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(plan.DiskDir); err != nil {
		return err
	}
	r, err := readRecord()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := setInstances(r.Instances); err != nil {
		return err
	}
	entries, err := os.ReadDir(plan.RunDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(plan.Record) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(plan.RunDir, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(plan.Record); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
