package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// Watch tells of changes in the directories: somebody removed or replaced what was installed, or put another network's
// configuration there. The channel has room for one: several changes may be told as one. Without a watch, which the kernel gives
// only so many of, the channel stays silent, and changes are found when Sync is called for another reason.
func (i *Installer) Watch(ctx context.Context) <-chan struct{} {
	if len(i.artifacts) == 0 {
		return nil
	}
	changes := make(chan struct{}, 1)
	w, err := fsnotify.NewWatcher()
	if err != nil {
		i.log.Warn("what is installed is not watched", "error", err)
		return changes
	}
	for _, a := range i.artifacts {
		dir := filepath.Dir(a.to)
		if err := errors.Join(os.MkdirAll(dir, 0o755), w.Add(dir)); err != nil {
			i.log.Warn("what is installed is not watched", "directory", dir, "error", err)
		}
	}
	go i.follow(ctx, w, changes)
	return changes
}

// concerns tells whether a file is one of ours or another network's configuration.
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
			i.log.Warn("changes of what is installed may have been missed", "error", err)
		}
		select {
		case changes <- struct{}{}:
		default: // there is one to be told already
		}
	}
}
