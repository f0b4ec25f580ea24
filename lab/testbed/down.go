package testbed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// Down removes the lab: its processes, namespaces, mounts, cgroups and files.
func (l *Lab) Down(ctx context.Context) error { return Down(ctx, l.Name) }

// Down removes everything that carries the mark of the lab of that name and nothing else, also what a
// crashed command left. It is no error when there is nothing.
func Down(ctx context.Context, name string) error {
	if !labName.MatchString(name) {
		return fmt.Errorf("%q is not a name of a lab", name)
	}
	root, err := Requirements()
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, name, true)
	if err != nil {
		return err
	}
	defer unlock()
	return takeDown(ctx, name, root)
}

// takeDown does the work of Down with the lab locked. Each step can be repeated; the directory of the lab,
// which is what List finds first, goes last and only when everything else is gone.
func takeDown(ctx context.Context, name, root string) error {
	if err := removeCgroup(ctx, labCgroup(root, name)); err != nil {
		return fmt.Errorf("take down lab %q: %w", name, err)
	}
	spaces, err := markedNetns()
	errs := []error{err, unmountBelow(labDir(name))}
	for _, path := range spaces[name] {
		errs = append(errs, removeNetns(path))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take down lab %q: %w", name, err)
	}
	if err := os.RemoveAll(labDir(name)); err != nil {
		return fmt.Errorf("take down lab %q: %w", name, err)
	}
	// What is above the labs goes with the last of them; another lab's presence is no error.
	_ = os.Remove(filepath.Dir(labCgroup(root, name)))
	_ = os.Remove(runDir)
	return nil
}

// Listed is a lab as List finds it.
type Listed struct {
	Name string
	// Lab is nil when only parts of a lab are there, left by a command that was interrupted.
	Lab *Lab
}

// List finds the labs of this machine, whole ones and remains, sorted by name.
func List() ([]Listed, error) {
	root, err := Requirements()
	if err != nil {
		return nil, err
	}
	spaces, err := markedNetns()
	if err != nil {
		return nil, err
	}
	names := slices.Collect(maps.Keys(spaces))
	for _, dir := range []string{runDir, filepath.Dir(labCgroup(root, "any"))} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && labName.MatchString(e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	var labs []Listed
	for _, name := range slices.Compact(names) {
		lab, err := Open(name)
		if err != nil && !errors.Is(err, ErrNotUp) {
			return nil, err
		}
		labs = append(labs, Listed{Name: name, Lab: lab})
	}
	return labs, nil
}
