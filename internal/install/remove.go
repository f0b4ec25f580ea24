package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Remove removes what an Installer with this configuration has installed and returns the names of removed files. The
// configuration goes first: without it the runtime starts no more pods. An error does not stop it.
func Remove(config Config) (removed []string, err error) {
	var files, dirs []string
	file := func(dir, name string) {
		if dir != "" {
			files = append(files, filepath.Join(dir, name))
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	file(config.ConfDir, Conflist)
	file(config.BinDir, Plugin)
	file(config.BinDir, PortMap)
	file(config.CommandDir, Command)
	file(config.CommandDir, Agent)
	var errs []error
	for _, name := range files {
		switch err := os.Remove(name); {
		case err == nil:
			removed = append(removed, name)
		case !errors.Is(err, os.ErrNotExist):
			errs = append(errs, fmt.Errorf("remove: %w", err))
		}
	}
	for _, dir := range dirs {
		errs = append(errs, removeUnfinished(dir))
	}
	if config.CommandDir != "" {
		// Only this directory is ours alone. It stays if it has other files, or is a mount point.
		err := os.Remove(config.CommandDir)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, fmt.Errorf("remove: %w", err))
		}
	}
	return removed, errors.Join(errs...)
}
