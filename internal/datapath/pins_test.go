package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// failToCommit is Commit that ends right before its last step, as if the agent were killed there.
func failToCommit(t *testing.T, d *opened) {
	t.Helper()
	inTheWay := filepath.Join(mapDir(d.objects.config.Root), committedNew, "x")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err == nil {
		t.Fatal("a directory in the place of the list is no error")
	}
	if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
		t.Fatal(err)
	}
}

// markedMaps are told from others by a single entry. The layout of one differs in nextVersion, one refers to such a map, and one does both.
func markedMaps(d *opened) map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		bpfMapEndpoints: d.objects.maps.Endpoints, bpfMapNatPods: d.objects.maps.NatPods, bpfMapServices: d.objects.maps.Services,
		bpfMapNat: d.objects.maps.Nat,
	}
}

func markMaps(t *testing.T, d *opened) {
	t.Helper()
	for name, m := range markedMaps(d) {
		if err := m.Put(make([]byte, m.KeySize()), make([]byte, m.ValueSize())); err != nil {
			t.Fatalf("put an entry into %s: %v", name, err)
		}
	}
}

// wantMarked says in how many of these maps the entry is to be.
func wantMarked(t *testing.T, d *opened, want bool) {
	t.Helper()
	for name, m := range markedMaps(d) {
		if n, err := countEntries(m); n == 1 != want || err != nil {
			t.Errorf("%d entries of %s, want one: %t (%v)", n, name, want, err)
		}
	}
}

// wantPins compares what is pinned with the maps of one agent.
func wantPins(t *testing.T, d *opened) {
	t.Helper()
	want := slices.Sorted(slices.Values(append(d.objects.committedList(), committedName)))
	if got := pinsAt(t, d.objects.config.Root); !slices.Equal(got, want) {
		t.Errorf("pins are %q, want %q", got, want)
	}
}

// An agent that is killed within Commit has changed nothing for the version before it, and what it has pinned is nobody's. Some of the maps that it
// replaces have the layout of those before.
func TestCommitIsOneStep(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true}
	d := tablesOf(t, cfg, nil)
	markMaps(t, d)
	d.mustCommit(t)
	killed := tablesOf(t, cfg, nextVersion)
	wantMarked(t, killed, false)
	replaced := slices.Clone(killed.objects.fresh)
	failToCommit(t, killed)
	wantFresh(t, tablesOf(t, cfg, nextVersion), replaced...)
	back := tablesOf(t, cfg, nil)
	wantFresh(t, back)
	wantMarked(t, back, true)
	back.mustCommit(t)
	wantPins(t, back)
}

// An agent whose maps have other sizes does not get in the way of the one before either, whichever of its names a pin has.
func TestCommitOfResizedMaps(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true, Sizes: Sizes{Services: 64, Connections: 64}}
	d := tablesOf(t, cfg, nil)
	markMaps(t, d)
	d.mustCommit(t)
	for range 3 {
		larger := cfg
		larger.Sizes = Sizes{Services: 2 * cfg.Sizes.Services, Connections: 2 * cfg.Sizes.Connections}
		failToCommit(t, tablesOf(t, larger, nil))
		back := tablesOf(t, cfg, nil)
		wantFresh(t, back)
		wantMarked(t, back, true)
		d := tablesOf(t, larger, nil)
		wantMarked(t, d, true)
		d.mustCommit(t)
		wantPins(t, d)
		cfg = larger
	}
}

// pinBare leaves what a version leaves whose pins do not name layouts, among pins of others that it does not know.
func pinBare(t *testing.T, cfg Config) {
	t.Helper()
	d := tablesOf(t, cfg, nil)
	for _, name := range pinnedMaps {
		m, err := d.objects.byName[name].Clone()
		if err != nil {
			t.Fatal(err)
		}
		err = m.Pin(filepath.Join(mapDir(cfg.Root), name))
		if err := errors.Join(err, m.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// Where a version without layouts has run after one with them, the maps of neither are taken over: the list is older than the last changes. It counts
// for nobody until there is another one, and until then the version without layouts finds all its pins.
func TestListThatIsOutOfDate(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true}
	for _, before := range []func(testing.TB, *ebpf.CollectionSpec){nil, nextVersion} {
		d := tablesOf(t, cfg, before)
		markMaps(t, d)
		d.mustCommit(t)
		pinBare(t, cfg)
		if size, err := RoutesSize(cfg.Root); size != 0 || err != nil {
			t.Errorf("the table of routes has room for %d: %v", size, err)
		}
		next := tablesOf(t, cfg, nil)
		wantFresh(t, next, slices.Clone(pinnedMaps)...)
		failToCommit(t, next)
		if now := pinsAt(t, cfg.Root); slices.ContainsFunc(pinnedMaps, func(name string) bool { return !slices.Contains(now, name) }) {
			t.Errorf("pins of the version without layouts are gone: %q are left", now)
		}
		wantFresh(t, tablesOf(t, cfg, before), slices.Clone(pinnedMaps)...)
		next = tablesOf(t, cfg, nil)
		wantFresh(t, next, slices.Clone(pinnedMaps)...)
		next.mustCommit(t)
		wantPins(t, next)
		wantFresh(t, tablesOf(t, cfg, nil))
		removePins(t, next)
	}
}

// removePins removes all pins.
func removePins(t *testing.T, d *opened) {
	t.Helper()
	if err := os.RemoveAll(mapDir(d.objects.config.Root)); err != nil {
		t.Fatal(err)
	}
}

// An agent commits at every change of devices. It touches nothing when it has done so already, and puts back what somebody has removed.
func TestCommitOnce(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true}
	var said strings.Builder
	d := adoptTables(t, cfg, slog.New(slog.NewTextHandler(&said, nil)))
	markMaps(t, d)
	d.mustCommit(t)
	written := func() (at []time.Time) {
		for _, path := range []string{mapDir(cfg.Root), filepath.Join(mapDir(cfg.Root), committedName)} {
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, info.ModTime())
		}
		return at
	}
	before := written()
	d.mustCommit(t)
	if now := written(); !slices.EqualFunc(now, before, time.Time.Equal) || said.Len() > 0 {
		t.Errorf("written at %v and again at %v; the log says %q", before, now, said.String())
	}
	for range 2 {
		removePins(t, d)
		d.mustCommit(t)
		wantPins(t, d)
		if !strings.Contains(said.String(), "level=WARN") {
			t.Errorf("the log says %q", said.String())
		}
		next := tablesOf(t, cfg, nil)
		wantFresh(t, next)
		wantMarked(t, next, true)
		said.Reset()
		d = adoptTables(t, cfg, slog.New(slog.NewTextHandler(&said, nil))) // whose maps were pinned before
		d.mustCommit(t)
	}
}

// Pins that this version does not know stop nothing and stay until everything is removed. Those without a layout, of versions that named none,
// are taken over by nobody and go.
func TestUnknownPins(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t)}
	tablesOf(t, cfg, nil) // makes the directories
	unknown := filepath.Join(mapDir(cfg.Root), fmt.Sprintf("wonders%s%016x", layoutSeparator, 1))
	nameless := filepath.Join(mapDir(cfg.Root), bpfMapEndpoints)
	pin := func(path string) {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 16, ValueSize: 20, MaxEntries: 4096, Flags: 1 /* BPF_F_NO_PREALLOC */})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := m.Put(make([]byte, 16), make([]byte, 20)); err != nil {
			t.Fatal(err)
		}
		if err := m.Pin(path); err != nil {
			t.Fatal(err)
		}
	}
	pin(unknown)
	pin(nameless)
	for range 2 {
		d := tablesOf(t, cfg, nil)
		if all, err := d.Endpoints.All(); len(all) != 0 || err != nil {
			t.Errorf("endpoints are %v: %v", all, err)
		}
		d.mustCommit(t)
		if _, err := os.Stat(unknown); err != nil {
			t.Errorf("another version's pin: %v", err)
		}
		if _, err := os.Stat(nameless); err == nil {
			t.Error("a pin without a layout stays")
		}
	}
	if err := os.Symlink("left half-way", filepath.Join(mapDir(cfg.Root), committedNew)); err != nil {
		t.Fatal(err)
	}
	removed, err := Remove(cfg.Root)
	slices.Sort(removed)
	want := []string{"map wonders"}
	for _, name := range pinnedMaps {
		want = append(want, "map "+name)
	}
	if slices.Sort(want); err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed are %q, want %q: %v", removed, want, err)
	}
	if _, err := os.Stat(mapDir(cfg.Root)); err == nil {
		t.Error("pins are left")
	}
}
