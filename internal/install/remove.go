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
	i, err := New(config, nil)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range slices.Backward(i.artifacts) {
		switch err := os.Remove(a.to); {
		case err == nil:
			removed = append(removed, a.to)
		case !errors.Is(err, os.ErrNotExist):
			errs = append(errs, fmt.Errorf("remove: %w", err))
		}
		errs = append(errs, removeUnfinished(filepath.Dir(a.to)))
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
