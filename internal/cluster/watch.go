package cluster

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch notifies of possible changes in a directory. It follows the directory by name: if it is missing, replaced, or
// a symbolic link that changes, the nearest parent notifies.
type watch struct {
	dir string
	log *slog.Logger
	// notify is nil where the kernel does not provide notifications; then only the interval passes.
	notify *fsnotify.Watcher
}

func (w *watch) close() {
	if w.notify != nil {
		_ = w.notify.Close()
	}
}

// follow watches the directory and its parent, or the nearest existing parent, as they are now. Call it before each
// reading, so that no change is missed.
func (w *watch) follow() {
	w.close()
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		w.log.Warn("manifests are re-read periodically only: the kernel does not provide notifications", "error", err)
		return
	}
	for path := w.dir; ; path = filepath.Dir(path) {
		err := w.notify.Add(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.log.Warn("directory is re-read periodically only", "directory", path, "error", err)
		}
		if err == nil && path != w.dir || path == filepath.Dir(path) {
			return
		}
	}
}

// wait returns true when it is time to read again: after a change and a quiet time, or after the interval. It returns
// false when ctx ends.
func (w *watch) wait(ctx context.Context, interval, quiet time.Duration) bool {
	var events chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		events, errs = w.notify.Events, w.notify.Errors
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	var latest time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case err := <-errs: // an overflow: something changed
			w.log.Debug("notification lost", "error", err)
			return true
		case event := <-events:
			if !w.concerns(event.Name) {
				continue
			}
			if latest.IsZero() {
				latest = time.Now().Add(patience)
			}
			timer.Reset(min(quiet, time.Until(latest)))
		}
	}
}

// concerns reports whether a changed path is in the directory, is the directory, or leads to it.
func (w *watch) concerns(path string) bool {
	return path == w.dir || filepath.Dir(path) == w.dir || strings.HasPrefix(w.dir, path+string(filepath.Separator))
}
