package load

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

// LayoutSeparator is between a map's name and its layout in the name of its pin.
const LayoutSeparator = "@"

// otherMark ends the name of a pin where the one without it is that of the earlier agent's map of the same layout.
const otherMark = "+"

// CommittedName is a symbolic link beside the pins of maps. What it points to is no path but the names of the pins that the last Commit has left:
// a BPF file system has no other files, and renaming a link over another one is one step.
const CommittedName = "committed"

// CommittedNew is that link until it is complete.
const CommittedNew = CommittedName + PinSeparator + "new"

// pins are the names that one agent's maps have below a root.
type pins struct {
	Root    string
	layouts map[string]string // by the name of the map
	Before  []string          // the pins that the earlier agent committed
	names   map[string]string // the pins of this agent, by the name of the map
}

// pinsBelow takes the earlier agent's pin for every map that has one of this layout.
func pinsBelow(root string, spec *ebpf.CollectionSpec, log *slog.Logger) (pins, error) {
	all, err := layouts(spec)
	if err != nil {
		return pins{}, err
	}
	before, known, err := committed(root)
	if err != nil {
		return pins{}, err
	}
	if !known && hasPins(root) {
		log.Info("maps are pinned that no agent has committed by their layout: they are replaced")
	}
	p := pins{Root: root, layouts: all, Before: before, names: map[string]string{}}
	for _, name := range PinnedMaps {
		p.names[name] = p.unmarked(name)
		if pin := listed(before, name); pin == p.names[name]+otherMark {
			p.names[name] = pin
		}
	}
	return p, nil
}

func hasPins(root string) bool {
	files, err := os.ReadDir(MapDir(root))
	return err == nil && len(files) > 0
}

func (p pins) unmarked(of string) string { return of + LayoutSeparator + p.layouts[of] }

func (p pins) Name(of string) string { return p.names[of] }

func (p pins) Path(of string) string { return filepath.Join(MapDir(p.Root), p.Name(of)) }

// had tells whether the earlier agent had a map, whatever its layout.
func (p pins) had(name string) bool { return listed(p.Before, name) != "" }

// listed is the pin of a map in a list of pins.
func listed(pins []string, name string) string {
	for _, pin := range pins {
		if of, _, _ := strings.Cut(pin, LayoutSeparator); of == name {
			return pin
		}
	}
	return ""
}

// replace gives a map that is not the earlier agent's a pin that is not either: until this agent commits, that one may come back for its own.
func (p pins) replace(name string) {
	if p.names[name] = p.unmarked(name); slices.Contains(p.Before, p.names[name]) {
		p.names[name] += otherMark
	}
}

// put pins a map. What has the name already was left half-way: no list has it.
func (p pins) put(name string, m *ebpf.Map) error {
	if err := m.Unpin(); err != nil { // by an attempt that failed
		return fmt.Errorf("remove pin of map %s: %w", name, err)
	}
	if err := os.Remove(p.Path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove pin of map %s that was left half-way: %w", name, err)
	}
	if err := m.Pin(p.Path(name)); err != nil {
		return fmt.Errorf("pin map %s: %w", name, err)
	}
	return nil
}

// committed are the names of pins that a Commit has left below a root; known is false where there was none, or a version has come after it whose
// pins do not name layouts: that one has left the list behind with maps that it did not touch.
func committed(root string) (names []string, known bool, err error) {
	files, err := os.ReadDir(MapDir(root))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, fmt.Errorf("list pins of maps: %w", err)
	}
	if slices.ContainsFunc(files, func(f os.DirEntry) bool { return slices.Contains(PinnedMaps, f.Name()) }) {
		return nil, false, nil
	}
	names, err = readList(root)
	return names, len(names) > 0, err
}

func readList(root string) ([]string, error) {
	text, err := os.Readlink(filepath.Join(MapDir(root), CommittedName))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read which maps are in use: %w", err)
	}
	return strings.Split(text, ","), nil
}

// list is what commit writes.
func (p pins) list() []string {
	names := make([]string, len(PinnedMaps))
	for i, name := range PinnedMaps {
		names[i] = p.Name(name)
	}
	return names
}

// commit makes these pins those that the next agent takes over.
func (p pins) commit() error {
	fresh := filepath.Join(MapDir(p.Root), CommittedNew)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove what was left half-way: %w", err)
	}
	if err := os.Symlink(strings.Join(p.list(), ","), fresh); err != nil {
		return fmt.Errorf("write which maps are in use: %w", err)
	}
	if err := os.Rename(fresh, filepath.Join(MapDir(p.Root), CommittedName)); err != nil {
		return fmt.Errorf("write which maps are in use: %w", err)
	}
	return nil
}

// renew pins all maps again where the list is not the one that this agent has committed: somebody has removed it, and perhaps the pins, too.
func (p pins) renew(maps map[string]*ebpf.Map, log *slog.Logger) error {
	names, err := readList(p.Root)
	if err != nil || slices.Equal(names, p.list()) {
		return err
	}
	log.Warn("somebody has removed pins of maps: all are pinned again", "directory", MapDir(p.Root))
	if err := os.MkdirAll(MapDir(p.Root), 0o700); err != nil {
		return fmt.Errorf("make directory for pins: %w", err)
	}
	for _, name := range PinnedMaps {
		if err := p.put(name, maps[name]); err != nil {
			return err
		}
	}
	return p.commit()
}

// sweep removes the pins of other versions: those that the last Commit before this one has left, and all that are not this agent's of maps that it
// has, too. Pins that nobody here knows stay until Remove. Programs that still use a map keep it: what stays is memory, at worst,
// so nothing that goes wrong here is worth more than a word.
func (p pins) sweep(log *slog.Logger) {
	files, err := os.ReadDir(MapDir(p.Root))
	if err != nil {
		log.Warn("pins of other versions", "error", err)
	}
	for _, f := range files {
		of, _, _ := strings.Cut(f.Name(), LayoutSeparator)
		switch {
		case p.layouts[of] != "" && f.Name() == p.Name(of):
			continue
		case p.layouts[of] == "" && !slices.Contains(p.Before, f.Name()):
			continue
		}
		if err := os.Remove(filepath.Join(MapDir(p.Root), f.Name())); err != nil {
			log.Warn("pin of another version stays", "pin", f.Name(), "error", err)
			continue
		}
		log.Info("pin of another version is removed", "pin", f.Name())
	}
}

// LoadCommitted opens a map that the last Commit has left, whatever its layout. It is os.ErrNotExist that there is none.
func LoadCommitted(root, name string) (*ebpf.Map, error) {
	names, _, err := committed(root)
	if err != nil {
		return nil, err
	}
	pin := listed(names, name)
	if pin == "" {
		return nil, os.ErrNotExist
	}
	return ebpf.LoadPinnedMap(filepath.Join(MapDir(root), pin), nil)
}
