package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// Watch reports changes in the directories: an installed file was removed or replaced, or another network's
// configuration was added. The channel has capacity 1, so several changes may coalesce. The kernel limits the number
// of watches; without one the channel stays silent and the next Sync finds the changes.
func (i *Installer) Watch(ctx context.Context) <-chan struct{} {
	if len(i.artifacts) == 0 {
		return nil
	}
	changes := make(chan struct{}, 1)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		i.log.Warn("installed files are not watched", "error", err)
		return changes
	}
	for _, a := range i.artifacts {
		dir := filepath.Dir(a.to)
		if err := errors.Join(os.MkdirAll(dir, 0o755), w.Add(dir)); err != nil {
			i.log.Warn("installed files are not watched", "directory", dir, "error", err)
		}
	}
	go i.follow(ctx, w, changes)
	return changes
}

// concerns reports whether a file is one of ours or another network's configuration.
func (i *Installer) concerns(name string) bool {
	return slices.ContainsFunc(i.artifacts, func(a artifact) bool { return a.to == name }) ||
		i.config.ConfDir != "" && filepath.Dir(name) == filepath.Clean(i.config.ConfDir) && isConfiguration(name)
}

func (i *Installer) follow(ctx context.Context, w *fsnotify.Watcher, changes chan<- struct{}) {
	defer w.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-w.Events:
			if !i.concerns(event.Name) {
				continue
			}
		case err := <-w.Errors:
			i.log.Warn("changes of installed files may have been missed", "error", err)
		}
		select {
		case changes <- struct{}{}:
		default: // a change is pending
		}
	}
}
