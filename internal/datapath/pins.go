package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// layoutSeparator is between a map's name and its layout in the name of its pin.
const layoutSeparator = "@"

// committedName is a symbolic link beside the pins of maps. What it points to is no path but the names of the pins that the last Commit has left:
// a BPF file system has no other files, and renaming a link over another one is one step.
const committedName = "committed"

// pins are the names that maps of one version have below a root.
type pins struct {
	root    string
	layouts map[string]string // by the name of the map
}

func pinsBelow(root string, spec *ebpf.CollectionSpec) (pins, error) {
	all, err := layouts(spec)
	return pins{root: root, layouts: all}, err
}

func (p pins) name(of string) string { return of + layoutSeparator + p.layouts[of] }

func (p pins) path(of string) string { return filepath.Join(mapDir(p.root), p.name(of)) }

// put pins a map. What has the name already, a map of another size, goes in the same step.
func (p pins) put(name string, m *ebpf.Map) error {
	fresh := p.path(name) + pinSeparator + "new"
	if err := m.Unpin(); err != nil { // by an attempt that failed
		return fmt.Errorf("remove pin of map %s: %w", name, err)
	}
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pin of map %s that was left half-way: %w", name, err)
	}
	if err := m.Pin(fresh); err != nil {
		return fmt.Errorf("pin map %s: %w", name, err)
	}
	if err := os.Rename(fresh, p.path(name)); err != nil {
		return fmt.Errorf("put pin of map %s in place: %w", name, err)
	}
	return nil
}

// committed are the names of pins that a Commit has left below a root; known is false where there was none, or one of a version whose pins do
// not name layouts.
func committed(root string) (names []string, known bool, err error) {
	text, err := os.Readlink(filepath.Join(mapDir(root), committedName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read which maps are in use: %w", err)
	}
	return strings.Split(text, ","), true, nil
}

// commit makes these pins those that the next agent takes over.
func (p pins) commit() error {
	names := make([]string, len(pinnedMaps))
	for i, name := range pinnedMaps {
		names[i] = p.name(name)
	}
	path := filepath.Join(mapDir(p.root), committedName)
	fresh := path + pinSeparator + "new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove what was left half-way: %w", err)
	}
	if err := os.Symlink(strings.Join(names, ","), fresh); err != nil {
		return fmt.Errorf("write which maps are in use: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("write which maps are in use: %w", err)
	}
	return nil
}

// sweep removes the pins of other versions: those that the last Commit before this one has left, and all of maps that this version has, too, with
// another layout or none. Pins that nobody here knows stay until Remove. Programs that still use a map keep it: what stays is memory, at worst,
// so nothing that goes wrong here is worth more than a word.
func (p pins) sweep(before []string, log *slog.Logger) {
	files, err := os.ReadDir(mapDir(p.root))
	if err != nil {
		log.Warn("pins of other versions", "error", err)
	}
	for _, f := range files {
		of, _, _ := strings.Cut(f.Name(), layoutSeparator)
		switch {
		case p.layouts[of] != "" && f.Name() == p.name(of):
			continue
		case p.layouts[of] == "" && !slices.Contains(before, f.Name()):
			continue
		}
		if err := os.Remove(filepath.Join(mapDir(p.root), f.Name())); err != nil {
			log.Warn("pin of another version stays", "pin", f.Name(), "error", err)
			continue
		}
		log.Info("pin of another version is removed", "pin", f.Name())
	}
}

// loadCommitted opens a map that the last Commit has left, whatever its layout. It is os.ErrNotExist that there is none.
func loadCommitted(root, name string) (*ebpf.Map, error) {
	names, _, err := committed(root)
	if err != nil {
		return nil, err
	}
	for _, pin := range names {
		if of, _, _ := strings.Cut(pin, layoutSeparator); of == name {
			return ebpf.LoadPinnedMap(filepath.Join(mapDir(root), pin), nil)
		}
	}
	return nil, os.ErrNotExist
}
