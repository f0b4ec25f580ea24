package load_test

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

	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// failToCommit runs Commit up to its last step, as if the agent were killed there.
func failToCommit(t *testing.T, d *harness.Opened) {
	t.Helper()
	inTheWay := filepath.Join(load.MapDir(d.Objects.Config.Root), load.CommittedNew, "x")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err == nil {
		t.Fatal("a directory in place of the list: no error")
	}
	if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
		t.Fatal(err)
	}
}

// markedMaps get an entry that identifies them. In nextVersion one has another layout, one refers to such a map, and
// one does both.
func markedMaps(d *harness.Opened) map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		bpf.MapEndpoints: d.Objects.Maps.Endpoints, bpf.MapNatPods: d.Objects.Maps.NatPods, bpf.MapServices: d.Objects.Maps.Services,
		bpf.MapNat: d.Objects.Maps.Nat,
	}
}

func markMaps(t *testing.T, d *harness.Opened) {
	t.Helper()
	for name, m := range markedMaps(d) {
		if err := m.Put(make([]byte, m.KeySize()), make([]byte, m.ValueSize())); err != nil {
			t.Fatalf("put an entry into %s: %v", name, err)
		}
	}
}

// wantMarked checks which of these maps have the entry.
func wantMarked(t *testing.T, d *harness.Opened, want bool) {
	t.Helper()
	for name, m := range markedMaps(d) {
		if n, err := table.Count(m); n == 1 != want || err != nil {
			t.Errorf("%d entries of %s, want one: %t (%v)", n, name, want, err)
		}
	}
}

// wantPins compares the pins with the maps of one agent.
func wantPins(t *testing.T, d *harness.Opened) {
	t.Helper()
	want := slices.Sorted(slices.Values(append(d.Objects.CommittedList(), load.CommittedName)))
	if got := pinsAt(t, d.Objects.Config.Root); !slices.Equal(got, want) {
		t.Errorf("pins are %q, want %q", got, want)
	}
}

// An agent that is killed within Commit changes nothing for the previous version, and no list has its pins. Some of
// the maps that it replaces have the same layout.
func TestCommitIsOneStep(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true}
	d := tablesOf(t, cfg, nil)
	markMaps(t, d)
	mustCommit(d, t)
	killed := tablesOf(t, cfg, nextVersion)
	wantMarked(t, killed, false)
	replaced := slices.Clone(killed.Objects.Fresh)
	failToCommit(t, killed)
	wantFresh(t, tablesOf(t, cfg, nextVersion), replaced...)
	back := tablesOf(t, cfg, nil)
	wantFresh(t, back)
	wantMarked(t, back, true)
	mustCommit(back, t)
	wantPins(t, back)
}

// An agent with other map sizes does not disturb the previous one either, with either pin name.
func TestCommitOfResizedMaps(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true, Sizes: config.Sizes{Services: 64, NAT: 64}}
	d := tablesOf(t, cfg, nil)
	markMaps(t, d)
	mustCommit(d, t)
	for range 3 {
		larger := cfg
		larger.Sizes = config.Sizes{Services: 2 * cfg.Sizes.Services, NAT: 2 * cfg.Sizes.NAT}
		failToCommit(t, tablesOf(t, larger, nil))
		back := tablesOf(t, cfg, nil)
		wantFresh(t, back)
		wantMarked(t, back, true)
		d := tablesOf(t, larger, nil)
		wantMarked(t, d, true)
		mustCommit(d, t)
		wantPins(t, d)
		cfg = larger
	}
}

// pinBare leaves the pins of a version without layouts in pin names, among unknown pins.
func pinBare(t *testing.T, cfg config.Datapath) {
	t.Helper()
	d := tablesOf(t, cfg, nil)
	for _, name := range load.PinnedMaps {
		m, err := d.Objects.ByName[name].Clone()
		if err != nil {
			t.Fatal(err)
		}
		err = m.Pin(filepath.Join(load.MapDir(cfg.Root), name))
		if err := errors.Join(err, m.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// If a version without layouts has run after one with them, no maps are adopted: the list is outdated. It is ignored
// until the next Commit, and until then the version without layouts finds all its pins.
func TestListThatIsOutOfDate(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true}
	for _, before := range []func(testing.TB, *ebpf.CollectionSpec){nil, nextVersion} {
		d := tablesOf(t, cfg, before)
		markMaps(t, d)
		mustCommit(d, t)
		pinBare(t, cfg)
		next := tablesOf(t, cfg, nil)
		wantFresh(t, next, slices.Clone(load.PinnedMaps)...)
		failToCommit(t, next)
		if now := pinsAt(t, cfg.Root); slices.ContainsFunc(load.PinnedMaps, func(name string) bool { return !slices.Contains(now, name) }) {
			t.Errorf("pins of the version without layouts are gone: %q are left", now)
		}
		wantFresh(t, tablesOf(t, cfg, before), slices.Clone(load.PinnedMaps)...)
		next = tablesOf(t, cfg, nil)
		wantFresh(t, next, slices.Clone(load.PinnedMaps)...)
		mustCommit(next, t)
		wantPins(t, next)
		wantFresh(t, tablesOf(t, cfg, nil))
		removePins(t, next)
	}
}

func removePins(t *testing.T, d *harness.Opened) {
	t.Helper()
	if err := os.RemoveAll(load.MapDir(d.Objects.Config.Root)); err != nil {
		t.Fatal(err)
	}
}

// An agent commits at every change of devices. A repeated Commit changes nothing, except that it restores removed
// pins.
func TestCommitOnce(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true}
	var said strings.Builder
	d := harness.OpenTables(t, cfg, slog.New(slog.NewTextHandler(&said, nil)))
	markMaps(t, d)
	mustCommit(d, t)
	written := func() (at []time.Time) {
		for _, path := range []string{load.MapDir(cfg.Root), filepath.Join(load.MapDir(cfg.Root), load.CommittedName)} {
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, info.ModTime())
		}
		return at
	}
	before := written()
	mustCommit(d, t)
	if now := written(); !slices.EqualFunc(now, before, time.Time.Equal) || said.Len() > 0 {
		t.Errorf("written at %v and again at %v; the log says %q", before, now, said.String())
	}
	for range 2 {
		removePins(t, d)
		mustCommit(d, t)
		wantPins(t, d)
		if !strings.Contains(said.String(), "level=WARN") {
			t.Errorf("the log says %q", said.String())
		}
		next := tablesOf(t, cfg, nil)
		wantFresh(t, next)
		wantMarked(t, next, true)
		said.Reset()
		d = harness.OpenTables(t, cfg, slog.New(slog.NewTextHandler(&said, nil))) // its maps were pinned before
		mustCommit(d, t)
	}
}

// Unknown pins do no harm and stay until Remove. Pins without a layout are not adopted, and removed.
func TestUnknownPins(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t)}
	tablesOf(t, cfg, nil) // creates the directories
	unknown := filepath.Join(load.MapDir(cfg.Root), fmt.Sprintf("wonders%s%016x", load.LayoutSeparator, 1))
	nameless := filepath.Join(load.MapDir(cfg.Root), bpf.MapEndpoints)
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
		mustCommit(d, t)
		if _, err := os.Stat(unknown); err != nil {
			t.Errorf("another version's pin: %v", err)
		}
		if _, err := os.Stat(nameless); err == nil {
			t.Error("a pin without a layout stays")
		}
	}
	if err := os.Symlink("incomplete", filepath.Join(load.MapDir(cfg.Root), load.CommittedNew)); err != nil {
		t.Fatal(err)
	}
	removed, err := attach.Remove(cfg.Root)
	slices.Sort(removed)
	want := []string{"map wonders"}
	for _, name := range load.PinnedMaps {
		want = append(want, "map "+name)
	}
	if slices.Sort(want); err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed are %q, want %q: %v", removed, want, err)
	}
	if _, err := os.Stat(load.MapDir(cfg.Root)); err == nil {
		t.Error("pins are left")
	}
}
