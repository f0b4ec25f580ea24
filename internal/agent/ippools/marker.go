package ippools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// marker is an empty file that exists while something holds. It outlives the agent, not the node's boot.
type marker string

func (m marker) exists() bool {
	_, err := os.Stat(string(m))
	return !errors.Is(err, fs.ErrNotExist) // an unreadable marker may be set
}

func (m marker) set(holds bool) error {
	if holds {
		file, err := os.Create(string(m))
		if err != nil {
			return fmt.Errorf("create marker: %w", err)
		}
		return file.Close()
	}
	if err := os.Remove(string(m)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove marker: %w", err)
	}
	return nil
}
