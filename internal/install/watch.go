package install

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

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
	names := map[string]bool{}
	for _, a := range i.artifacts {
		names[a.to] = true
		dir := filepath.Dir(a.to)
		if err := errors.Join(os.MkdirAll(dir, 0o755), w.Add(dir)); err != nil {
			i.log.Warn("what is installed is not watched", "directory", dir, "error", err)
		}
	}
	concerns := func(name string) bool {
		return names[name] || filepath.Dir(name) == filepath.Clean(i.config.ConfDir) && isConfiguration(name)
	}
	go follow(ctx, w, concerns, changes, i.log)
	return changes
}

func follow(ctx context.Context, w *fsnotify.Watcher, concerns func(string) bool, changes chan<- struct{}, log *slog.Logger) {
	defer w.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-w.Events:
			if !concerns(event.Name) {
				continue
			}
		case err := <-w.Errors:
			log.Warn("changes of what is installed may have been missed", "error", err)
		}
		select {
		case changes <- struct{}{}:
		default: // there is one to be told already
		}
	}
}
