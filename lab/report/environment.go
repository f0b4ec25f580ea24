package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// environment has what a reader needs to check and repeat the run. Only the page shows it.
func (v *view) environment() Section {
	e, s, run := v.run.Environment, v.run.Settings, v.run
	machine := newTable(PageOnly, "Machine and settings", "", "Property", "value")
	for _, property := range [][2]string{
		{"Machine", e.Hostname}, {"Kernel", e.Kernel}, {"Distribution", e.Distribution}, {"Processor", processors(e)},
		{"Memory", positive(float64(e.MemoryBytes), "B")}, {"Virtualization", e.Virtualization}, {"Congestion control", e.CongestionControl},
		{"Load before", e.LoadBefore}, {"Beeline", run.Version}, {"Mode", s.Mode}, {"Rounds requested", fmt.Sprint(s.Rounds)},
		{"Seconds per sample", fmt.Sprint(s.Seconds)}, {"Placement", strings.Join(s.Placement, ", ")}, {"MTU", fmt.Sprint(s.MTU)},
		{"IPv6", fmt.Sprint(s.IPv6)}, {"Seed of the order", fmt.Sprint(run.Seed)}, {"Schema", fmt.Sprint(run.Schema)},
	} {
		machine.addMeasured(property[0], property[1])
	}
	if run.Cluster != nil {
		machine.addCluster(run.Cluster)
	}
	networks := newTable(PageOnly, "Networks", "", "Name", "description", "version", "facts")
	for _, n := range run.Networks {
		var facts []string
		for _, name := range slices.Sorted(maps.Keys(n.Facts)) {
			facts = append(facts, name+": "+n.Facts[name])
		}
		networks.add(n.Name, strings.TrimSpace(n.Description+" "+n.Unsupported), n.Version, listed(facts...))
	}
	return Section{ID: "environment", Title: "Environment", Tables: []*Table{
		machine, networks, properties("Tools", e.Tools), properties("Kernel features present", e.Features), properties("Sysctls", e.Sysctls), v.commands(),
	}}
}

func properties[V any](title string, values map[string]V) *Table {
	t := newTable(PageOnly, title, "", "Property", "value")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		t.add(name, values[name])
	}
	return t
}

// commands has one command line per figure; the others differ in their addresses.
func (v *view) commands() *Table {
	t := newTable(PageOnly, "Command lines", "", "Figure", "command")
	t.Fold, t.Notes = "Command lines", []string{"netperf's -l is an upper limit: the bench ends each sample itself."}
	for _, f := range v.figures {
		s := find(v.run.Samples, func(s result.Sample) bool { return f.key == stats.KeyOf(&s) && len(s.Command) > 0 })
		t.addMeasured(listed(f.work.Title, context(f.key)), commandText(s.Command))
	}
	return t
}
