package endpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

// store keeps one file for each endpoint. A file is written before its address is in use and deleted after the
// address is free, so an address that a crash leaves in doubt counts as used.
type store struct{ dir string }

const storeSuffix = ".json"

func storeIn(stateDir string) store { return store{filepath.Join(stateDir, "endpoints")} }

// Stored reads the endpoints from their files, without an agent. Errors of some are returned beside the others.
func Stored(stateDir string) ([]agentapi.Endpoint, error) { return storeIn(stateDir).load() }

// openStore creates the directory of endpoint files below the state directory and removes unfinished files of a
// crash.
func openStore(stateDir string) (store, error) {
	s := storeIn(stateDir)
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return s, fmt.Errorf("make endpoint directory: %w", err)
	}
	halves, err := filepath.Glob(filepath.Join(s.dir, "*.tmp"))
	if err != nil {
		return s, fmt.Errorf("list endpoint files: %w", err)
	}
	for _, h := range halves {
		if err := os.Remove(h); err != nil {
			return s, fmt.Errorf("remove half-written endpoint file: %w", err)
		}
	}
	return s, nil
}

// save writes the endpoint's file by rename: readers and crashes see the old one or the new one.
func (s store) save(e agentapi.Endpoint) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode endpoint %s: %w", e.HostDevice, err)
	}
	path := s.path(e.HostDevice)
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return fmt.Errorf("write endpoint file: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("put endpoint file in place: %w", err)
	}
	return nil
}

// remove deletes the file of a host device's endpoint; a missing one is no error.
func (s store) remove(hostDevice string) error {
	if err := os.Remove(s.path(hostDevice)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove endpoint file: %w", err)
	}
	return nil
}

// load reads all files. Errors of some are returned beside the others.
func (s store) load() ([]agentapi.Endpoint, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list endpoint files: %w", err)
	}
	var all []agentapi.Endpoint
	var errs []error
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), storeSuffix)
		if !ok {
			continue
		}
		var e agentapi.Endpoint
		data, err := os.ReadFile(s.path(name))
		if err == nil {
			err = json.Unmarshal(data, &e)
		}
		if err == nil && e.HostDevice != name {
			err = fmt.Errorf("it is for device %q", e.HostDevice)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read endpoint file %s: %w", s.path(name), err))
			continue
		}
		all = append(all, e)
	}
	return all, errors.Join(errs...)
}

func (s store) path(hostDevice string) string {
	return filepath.Join(s.dir, hostDevice+storeSuffix)
}
