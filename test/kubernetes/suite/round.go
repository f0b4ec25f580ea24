package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/beeline-cni/beeline/test/kubernetes/plan"
	"github.com/beeline-cni/beeline/test/kubernetes/testbed"
)

// note marks the clusters of this suite.
const note = "make test-kubernetes"

// run starts the cluster, runs all tests, also after a failure, and removes the cluster. Starting and removing count as
// tests.
func (r round) run(ctx context.Context, parts testbed.Parts, logs string) (err error) {
	options := r.options.Defaults()
	options.Note = note
	begin := time.Now()
	if _, err := testbed.Up(ctx, options, parts, progress); err != nil {
		err = fmt.Errorf("bring up: %w", err)
		report("Up/"+r.name, begin, err)
		// Another user's cluster stays; one that did not start completely is removed.
		if _, open := testbed.Open(); open != nil {
			return errors.Join(err, keepLogs(logs, r), testbed.Down(context.WithoutCancel(ctx), note))
		}
		return err
	}
	report("Up/"+r.name, begin, nil)
	defer func() {
		if err != nil {
			err = errors.Join(err, keepLogs(logs, r))
		}
		begin := time.Now()
		down := testbed.Down(context.WithoutCancel(ctx), note)
		report("Down/"+r.name, begin, down)
		err = errors.Join(err, down)
	}()
	for _, test := range r.tests {
		err = errors.Join(err, test.run(ctx, r.name))
	}
	return err
}

// keepLogs copies the logs of the cluster's components and pods, which are removed with it.
func keepLogs(logs string, r round) error {
	for _, m := range plan.New(r.options.Defaults()).Machines() {
		for name, from := range map[string]string{
			"components": plan.LogDir(m.Name),
			"pods":       filepath.Join(plan.Disk(m.Name), "var/log/pods"),
		} {
			err := os.CopyFS(filepath.Join(logs, r.name, m.Name, name), os.DirFS(from))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("keep logs of %s: %w", m.Name, err)
			}
		}
	}
	progress("the logs of the %s cluster are in %s", r.name, filepath.Join(logs, r.name))
	return nil
}
