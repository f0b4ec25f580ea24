package datapath_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/samenode"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

const docsDir = "../../docs"

// tableBelow returns the rows, with the header, of the first table with this first column below a heading of a
// documentation page.
func tableBelow(t *testing.T, page, heading, column string) [][]string {
	t.Helper()
	text, err := os.ReadFile(docsDir + "/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, table, ok := strings.Cut(section, "\n| "+column+" |")
	if !ok {
		t.Fatalf("%s has no table of a %s below %q", page, column, heading)
	}
	table, _, _ = strings.Cut("| "+column+" |"+table, "\n\n")
	var rows [][]string
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "|---") {
			continue
		}
		var cells []string
		for _, cell := range strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		rows = append(rows, cells)
	}
	return rows
}

var markedAsCode = regexp.MustCompile("`([a-z0-9_]+)`")

// namesIn returns the words of a cell that are marked as code.
func namesIn(cell string) []string {
	var all []string
	for _, m := range markedAsCode.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// compiled returns the names of the programs of all objects, and their maps.
func compiled(t *testing.T) (programs []string, maps map[string]*ebpf.MapSpec) {
	t.Helper()
	maps = map[string]*ebpf.MapSpec{}
	for _, load := range []func() (*ebpf.CollectionSpec, error){bpf.Load, bpf.LoadDestroy, bpf.LoadSameNode, bpf.LoadSameNodeDestroy} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for name := range spec.Programs {
			programs = append(programs, name)
		}
		for name, m := range spec.Maps {
			if !strings.HasPrefix(name, ".rodata") {
				maps[name] = m
			}
		}
	}
	return programs, maps
}

// The table of maps in docs/architecture.md has every map once, and no other, and says which are not pinned.
func TestArchitectureListsMaps(t *testing.T) {
	_, maps := compiled(t)
	listed := map[string]bool{}
	for _, row := range tableBelow(t, "architecture.md", "Tables", "map")[1:] {
		for _, name := range namesIn(row[0]) {
			switch {
			case maps[name] == nil:
				t.Errorf("architecture.md lists %s, which is not a map", name)
			case listed[name]:
				t.Errorf("architecture.md lists %s twice", name)
			}
			listed[name] = true
			if pinned, says := slices.Contains(slices.Concat(load.PinnedMaps, samenode.PinnedMaps), name), !strings.Contains(row[1], "not pinned"); pinned != says {
				t.Errorf("architecture.md: %s is pinned: %t; the table says %t", name, pinned, says)
			}
		}
	}
	for name := range maps {
		if !listed[name] {
			t.Errorf("architecture.md does not list map %s", name)
		}
	}
}

// The table of hooks in docs/architecture.md has every program once, and no other.
func TestArchitectureListsPrograms(t *testing.T) {
	programs, _ := compiled(t)
	var listed []string
	for _, row := range tableBelow(t, "architecture.md", "What a packet meets", "hook")[1:] {
		listed = append(listed, namesIn(row[1])...)
	}
	slices.Sort(programs)
	slices.Sort(listed)
	if !slices.Equal(programs, listed) {
		t.Errorf("architecture.md lists the programs %v, the objects have %v", listed, programs)
	}
}

// The alert that docs/observe.md recommends covers every map that rejects new entries when it is full, and no other:
// arrays are always full, and the others evict.
func TestAlertIsAboutMapsThatCanBeFull(t *testing.T) {
	text, err := os.ReadFile(docsDir + "/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	alert := regexp.MustCompile(`beeline_map_entries\{map=~"([a-z_|]+)"\}`).FindSubmatch(text)
	if alert == nil {
		t.Fatal("observe.md recommends no alert on beeline_map_entries")
	}
	_, maps := compiled(t)
	var want []string
	names := slices.Concat(load.PinnedMaps, load.PrivateMaps)
	for name := range maps {
		if strings.HasPrefix(name, "sn_") {
			names = append(names, name)
		}
	}
	for _, name := range names {
		switch maps[name].Type {
		case ebpf.Hash, ebpf.PerCPUHash, ebpf.LPMTrie, ebpf.DevMapHash:
			if !slices.Contains(table.SharedMaps, name) {
				want = append(want, name)
			}
		}
	}
	got := strings.Split(string(alert[1]), "|")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("the alert covers %v, maps that reject when full are %v", got, want)
	}
}
