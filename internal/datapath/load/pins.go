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

// LayoutSeparator separates a map's name from its layout in the name of its pin.
const LayoutSeparator = "@"

// otherMark ends the name of a pin if the earlier agent's map of the same layout has the name without it.
const otherMark = "+"

// CommittedName is a symbolic link next to the pins of maps. Its target is not a path but the list of pins of the
// last Commit: a BPF file system has no regular files, and renaming a link over another one is atomic.
const CommittedName = "committed"

// CommittedNew is the name of that link before the rename.
const CommittedNew = CommittedName + PinSeparator + "new"

// pins are the pin names of one agent's maps below a root.
type pins struct {
	Root    string
	layouts map[string]string // by the name of the map
	Before  []string          // the pins that the earlier agent committed
	names   map[string]string // the pins of this agent, by the name of the map
}

// pinsBelow uses the earlier agent's pin for every map whose layout is unchanged.
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
		log.Info("pinned maps have no committed layouts: they are replaced")
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

// had reports whether the earlier agent had a map, with any layout.
func (p pins) had(name string) bool { return listed(p.Before, name) != "" }

// listed is the pin of a map in a list of pins; empty if there is none.
func listed(pins []string, name string) string {
	for _, pin := range pins {
		if of, _, _ := strings.Cut(pin, LayoutSeparator); of == name {
			return pin
		}
	}
	return ""
}

// replace gives a map a pin other than the earlier agent's: until this agent commits, the earlier one may restart and
// use its own.
func (p pins) replace(name string) {
	if p.names[name] = p.unmarked(name); slices.Contains(p.Before, p.names[name]) {
		p.names[name] += otherMark
	}
}

// put pins a map. A pin that has the name already is in no list: an attempt that failed left it.
func (p pins) put(name string, m *ebpf.Map) error {
	if err := m.Unpin(); err != nil { // from an attempt that failed
		return fmt.Errorf("remove pin of map %s: %w", name, err)
	}
	if err := os.Remove(p.Path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove incomplete pin of map %s: %w", name, err)
	}
	if err := m.Pin(p.Path(name)); err != nil {
		return fmt.Errorf("pin map %s: %w", name, err)
	}
	return nil
}

// committed are the pins that a Commit listed below a root. Known is false if there is no list, or if a later version
// without layouts in its pin names has left the list behind.
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
		return nil, fmt.Errorf("read list of committed maps: %w", err)
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

// commit makes these the pins that the next agent adopts.
func (p pins) commit() error {
	fresh := filepath.Join(MapDir(p.Root), CommittedNew)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove incomplete list of committed maps: %w", err)
	}
	if err := os.Symlink(strings.Join(p.list(), ","), fresh); err != nil {
		return fmt.Errorf("write list of committed maps: %w", err)
	}
	if err := os.Rename(fresh, filepath.Join(MapDir(p.Root), CommittedName)); err != nil {
		return fmt.Errorf("write list of committed maps: %w", err)
	}
	return nil
}

// renew pins all maps again if the list is not the one that this agent has committed: something has removed it, and
// perhaps the pins.
func (p pins) renew(maps map[string]*ebpf.Map, log *slog.Logger) error {
	names, err := readList(p.Root)
	if err != nil || slices.Equal(names, p.list()) {
		return err
	}
	log.Warn("pins of maps were removed: all maps are pinned again", "directory", MapDir(p.Root))
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

// sweep removes the pins of other versions: those of the previous Commit, and other pins of maps that this agent has.
// Unknown pins stay until Remove. Programs that still use a map keep it. A failure wastes memory at worst, so sweep
// only logs it.
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
			log.Warn("cannot remove pin of another version", "pin", f.Name(), "error", err)
			continue
		}
		log.Info("pin of another version is removed", "pin", f.Name())
	}
}

// LoadCommitted opens a map of the last Commit, with any layout. The error is os.ErrNotExist if there is none.
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
