package status

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// A table warns at four fifths, once, and the warning ends a little below.
func TestNearlyFullTables(t *testing.T) {
	var said strings.Builder
	f := &Tables{log: slog.New(slog.NewTextHandler(&said, nil))}
	tableOf := func(name, kind string, entries int) table.MapInfo {
		return table.MapInfo{Name: name, Type: kind, Entries: entries, MaxEntries: 1000}
	}
	for _, step := range []struct {
		entries int
		want    []string
		logged  int
	}{
		{799, nil, 0},
		{800, []string{"table routes is nearly full: 800 of 1000 entries: raise --routes-max"}, 1},
		{750, []string{"table routes is nearly full: 750 of 1000 entries: raise --routes-max"}, 1},
		{810, []string{"table routes is nearly full: 810 of 1000 entries: raise --routes-max"}, 1},
		{699, nil, 2},
		{799, nil, 2},
		{1000, []string{"table routes is nearly full: 1000 of 1000 entries: raise --routes-max"}, 3},
	} {
		f.look([]table.MapInfo{
			tableOf("routes", "Hash", step.entries), tableOf("endpoints", "Hash", 10), tableOf("affinities", "LRUHash", 1000), tableOf("drops", "PerCPUArray", 1000),
			{Name: "services", Type: "Hash", Entries: 1, MaxEntries: 1},
		})
		if diff := cmp.Diff(step.want, f.Problems()); diff != "" {
			t.Errorf("%d entries (-want +got):\n%s", step.entries, diff)
		}
		if got := strings.Count(said.String(), "table="); got != step.logged {
			t.Errorf("%d entries: %d lines in the log, want %d:\n%s", step.entries, got, step.logged, said.String())
		}
	}
	f.look([]table.MapInfo{tableOf("endpoints", "Hash", 900), tableOf("identity_cidrs", "LPMTrie", 801)})
	want := []string{"table endpoints is nearly full: 900 of 1000 entries", "table identity_cidrs is nearly full: 801 of 1000 entries: raise --identities-max"}
	if diff := cmp.Diff(want, f.Problems()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
