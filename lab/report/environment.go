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
	pairs := func(title string) *Table {
		return &Table{Title: title, In: OnHTML, Columns: []Column{{Left: true}, {Left: true}}}
	}
	table := pairs("Machine and settings")
	for _, f := range append([][2]string{
		{"Machine", e.Hostname}, {"Kernel", e.Kernel}, {"Distribution", e.Distribution},
		{"Processor", strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%d × %s", e.CPUs, e.CPU), "0 × "), " × ")},
		{"Memory", positive(float64(e.MemoryBytes), "B")}, {"Virtualization", e.Virtualization}, {"Congestion control", e.CongestionControl},
		{"Load before", e.LoadBefore}, {"Beeline", run.Version}, {"Mode", s.Mode}, {"Rounds requested", positive(float64(s.Rounds), "")},
		{"Seconds per sample", positive(s.Seconds, "")}, {"Placement", strings.Join(s.Placement, ", ")}, {"MTU", positive(float64(s.MTU), "")},
		{"IPv6", map[bool]string{true: "yes", false: "no"}[s.IPv6]}, {"Seed of the order", fmt.Sprint(run.Seed)}, {"Schema", fmt.Sprint(run.Schema)},
	}, clusterFacts(run.Cluster)...) {
		if f[1] != "" {
			table.add(f[0], text(f[1]))
		}
	}
	networks := &Table{Title: "Networks", In: OnHTML, Columns: []Column{texts("Name"), texts("description"), texts("version"), texts("facts")}}
	for _, n := range run.Networks {
		var facts []string
		for _, name := range slices.Sorted(maps.Keys(n.Facts)) {
			facts = append(facts, name+": "+n.Facts[name])
		}
		networks.add(n.Name, Cell{Text: strings.TrimSpace(n.Description + " " + n.Unsupported)}, Cell{Text: n.Version}, Cell{Text: strings.Join(facts, " · ")})
	}
	tools, features, sysctls := pairs("Tools"), pairs("Kernel features"), pairs("Sysctls")
	for _, name := range slices.Sorted(maps.Keys(e.Tools)) {
		tools.add(name, text(e.Tools[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Features)) {
		features.add(name, text(map[bool]string{true: "present", false: "missing"}[e.Features[name]]))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Sysctls)) {
		sysctls.add(name, text(e.Sysctls[name]))
	}
	return Section{ID: "environment", Title: "Environment", Tables: []*Table{table, networks, tools, features, sysctls, v.commands()}}
}

// commands has one command line per figure; the others differ in their addresses.
func (v *view) commands() *Table {
	t := &Table{Title: "Command lines", In: OnHTML, Fold: "Command lines", Columns: []Column{texts("Figure"), texts("command")},
		Notes: []string{"netperf's -l is an upper limit: the bench ends each sample itself."}}
	for _, f := range v.figures {
		i := slices.IndexFunc(v.run.Samples, func(s result.Sample) bool { return f.key == stats.KeyOf(&s) && len(s.Command) > 0 })
		if i >= 0 {
			t.add(f.work.Title+" · "+context(f.key), text(commandText(v.run.Samples[i].Command)))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}
