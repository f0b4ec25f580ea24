package lb

import (
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// tables are the maps of Services and their tables.
type tables struct {
	*load.Objects
	Services *Services
}

// openServices opens the maps of Services, pinned below a root of their own unless cfg has one.
func openServices(tb testing.TB, cfg config.Datapath) *tables {
	tb.Helper()
	cfg.Services = true
	o := testmaps.Open(tb, cfg)
	return &tables{o, New(&o.Maps, cfg.MaglevSize)}
}

// restart opens what a killed agent left: one that closed nothing.
func restart(tb testing.TB, d *tables) *tables {
	tb.Helper()
	if err := d.Commit(); err != nil {
		tb.Fatal(err)
	}
	return openServices(tb, d.Config)
}

// holds fails the test unless the kernel has exactly these ports.
func holds(tb testing.TB, s *Services, want ...service.Port) {
	tb.Helper()
	all, err := s.All()
	if err != nil {
		tb.Fatal(err)
	}
	got := map[service.PortName][]service.Entry{}
	for _, p := range all {
		if len(p.Entries) > 0 {
			got[p.Name] = p.Entries
		}
	}
	wanted := map[service.PortName][]service.Entry{}
	for _, p := range want {
		wanted[p.Name] = slices.SortedFunc(slices.Values(p.Entries), func(a, b service.Entry) int { return compareFrontends(a.Frontend, b.Frontend) })
	}
	if diff := cmp.Diff(wanted, got, fixtures.CompareEntries); diff != "" {
		tb.Errorf("Services (-wanted +kernel):\n%s", diff)
	}
}

// entries counts the entries of the maps that Sync and Apply write.
func entries(tb testing.TB, s *Services) map[string]int {
	tb.Helper()
	counts := map[string]int{}
	for name, m := range map[string]*ebpf.Map{
		bpf.MapServices: s.services, bpf.MapBackends: s.sets.m, bpf.MapMaglev: s.tables.m, bpf.MapServiceSources: s.sources.m,
	} {
		n, err := table.Count(m)
		if err != nil {
			tb.Fatal(err)
		}
		counts[name] = n
	}
	return counts
}

// later sweeps when the time of grace is over.
func later(tb testing.TB, s *Services) {
	tb.Helper()
	if err := s.Sweep(time.Now().Add(2 * grace)); err != nil {
		tb.Error(err)
	}
}
