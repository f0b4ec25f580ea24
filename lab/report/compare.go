package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/comparison"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// nothingInCommon is the caution of a comparison without figures.
const nothingInCommon = "The two runs have no figure in common."

// Compare makes the comparison of run b with run a, figure by figure: B ÷ A of the values, and B ÷ A of the ratios to
// node, which also hold between machines.
func Compare(a, b *result.Run) *Document {
	va, vb := newView(a), newView(b)
	d := &Document{Title: "How B differs from A", Key: []string{
		"B ÷ A with an interval of at least 95 %: of the values, and of the ratios to node within each run, which also hold between machines.",
		"~: no difference decided, the interval includes 1 or is missing. ↓: lower is better. " + dash + ": no value.",
	}}
	for _, line := range va.provenance() {
		d.Provenance = append(d.Provenance, "A: "+line)
	}
	for _, line := range vb.provenance() {
		d.Provenance = append(d.Provenance, "B: "+line)
	}
	if machine(a.Environment) != machine(b.Environment) {
		d.Cautions = append(d.Cautions, "A and B ran on different machines or kernels: compare the ratios to node, not the values.")
	}
	if ca, cb := a.Cluster, b.Cluster; ca != nil && cb != nil {
		if ca.CNI != cb.CNI || ca.KubeProxy != cb.KubeProxy {
			d.Cautions = append(d.Cautions, fmt.Sprintf("A is %s with kube-proxy %s, B is %s with kube-proxy %s.", ca.CNI, ca.KubeProxy, cb.CNI, cb.KubeProxy))
		}
		if ca.Client.Name != cb.Client.Name || ca.Server.Name != cb.Server.Name {
			d.Cautions = append(d.Cautions, "A and B have their ends on different nodes.")
		}
	}
	if a.Settings.MTU != b.Settings.MTU {
		d.Cautions = append(d.Cautions, "A and B have different MTUs: throughput depends on the size of packets.")
	}
	changes := comparison.Of(a, b)
	if len(changes) == 0 {
		d.Cautions = append(d.Cautions, nothingInCommon)
		return d
	}
	figures := Section{ID: "figures", Title: "Figures", Notes: []string{"Highlighted: the ratios to node differ."}}
	for _, key := range va.keys() {
		if t := va.changes(key, changes); len(t.Rows) > 0 {
			figures.Tables = append(figures.Tables, t)
		}
	}
	for _, t := range []*Table{va.otherChanges(changes), costChanges(changes)} {
		if len(t.Rows) > 0 {
			figures.Tables = append(figures.Tables, t)
		}
	}
	d.Sections = []Section{figures}
	return d
}

// changes is the table of the metric that a workload is about.
func (v *view) changes(key stats.Key, changes []comparison.Change) *Table {
	w := v.workload(key.Workload)
	values := func(title string) string { return better(title, w.Better) }
	t := newTable(Everywhere, w.Title, context(key), v.noun(),
		values("A"), values("B"), values("B ÷ A"), "interval", "ratio A", "ratio B", "B ÷ A of ratios", "interval")
	var here []comparison.Change
	for _, c := range changes {
		if c.Headline && c.Samples() == key {
			here = append(here, c)
		}
	}
	place := func(c comparison.Change) float64 { return placeOf(c.Network, c.A.Ratio.Interval(), w.Better) }
	slices.SortStableFunc(here, func(a, b comparison.Change) int { return cmp.Compare(place(a), place(b)) })
	for _, c := range here {
		ratioA, ratioB := dash, dash
		if c.Ratio != nil {
			ratioA, ratioB = ratio(&c.A.Ratio.Median), ratio(&c.B.Ratio.Median)
		}
		t.addChange(c.Network, c, append([]any{quantity(c.A.Median, c.Unit), quantity(c.B.Median, c.Unit)}, changeCells(c.Value)...),
			append([]any{ratioA, ratioB}, changeCells(c.Ratio)...))
	}
	return t
}

// otherChanges is the table of all other metrics of workloads.
func (v *view) otherChanges(changes []comparison.Change) *Table {
	t := newTable(PageOnly, "Other metrics of the workloads", "", v.noun(), "figure", "metric", "A", "B", "B ÷ A", "interval", "B ÷ A of ratios", "interval")
	t.Fold = "All other metrics"
	for _, c := range changes {
		if c.Metric == "" || c.Headline || strings.HasSuffix(c.Metric, result.VersusWire) {
			continue
		}
		t.addChange(c.Network, c, []any{listed(v.workload(c.Name).Title, context(c.Samples())), better(c.Metric, c.Better), quantity(c.A.Median, c.Unit), quantity(c.B.Median, c.Unit)},
			append(changeCells(c.Value), changeCells(c.Ratio)...))
	}
	return t
}

// costChanges is the table of what networks cost without traffic.
func costChanges(changes []comparison.Change) *Table {
	t := newTable(Everywhere, "Costs without traffic, and changes of the cluster", "", "Network", "cost", "objects", "A", "B", "B ÷ A", "interval")
	for _, c := range changes {
		if c.Metric != "" {
			continue
		}
		objects := dash
		if c.Objects > 0 {
			objects = count(c.Objects)
		}
		t.addChange(c.Network, c, []any{c.Name, objects, quantity(c.A.Median, c.Unit), quantity(c.B.Median, c.Unit)}, changeCells(c.Value))
	}
	return t
}

// addChange adds a row, highlighted if the change of the ratios to node is decided.
func (t *Table) addChange(name string, c comparison.Change, cells ...[]any) {
	t.add(name, slices.Concat(cells...)...).Class = ""
	if c.Ratio.Decided() {
		t.Rows[len(t.Rows)-1].Class = "hot"
	}
}

// changeCells are a quotient and its interval.
func changeCells(v *comparison.Value) []any {
	if v == nil {
		return []any{none, dash}
	}
	return []any{ratioCell(v.Interval()), interval(v.Low, v.High)}
}
