package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// policySection is what the policy bench says beside its figures.
type policySection struct {
	// Against are the ratios of pairs, by workload; Charts have the same.
	Against  *grid
	Charts   []template.HTML
	Truth    *truthTable
	Changes  []changeRow
	Tables   *grid
	Compiled []compileRow
}

// policyPairs are contenders that differ in one thing only: what each of them costs is its ratio to the other.
var policyPairs = [][2]string{
	{policyElsewhere, subject}, {withPolicy, subject}, {policyMany, subject}, {blocksOne, subject}, {blocksMany, blocksOne},
	{allFlows, subject}, {withPolicy, flowsOff}, {"ptp-iptables-policy", "ptp"}, {"ptp", subject}, {"ptp-iptables-policy", withPolicy},
}

// The contenders of the policy bench that promises are about.
const (
	policyElsewhere = "beeline-policy-elsewhere"
	withPolicy      = "beeline-policy"
	policyMany      = "beeline-policy-1000"
	blocksOne       = "beeline-blocks-1"
	blocksMany      = "beeline-blocks-100000"
	allFlows        = "beeline-flows"
	flowsOff        = "beeline-policy-flows-off"
)

// truthTable has a row for each connection that was tried and a column for each contender.
type truthTable struct {
	Columns []string
	Rows    []truthRow
	// Wrong says of each contender how many answers are not as they have to be; Notes why one has none.
	Wrong []fact
	Notes []fact
}

type truthRow struct {
	What, Path, Protocol, Ends, Want string
	Cells                            []truthCell
}

// truthCell is "works" or "does not", Wrong if that is not as it has to be; or "not known", and Why.
type truthCell struct {
	Text  string
	Wrong bool
	Why   string
}

type compileRow struct{ Name, Among, Local, Scratch, Compiler, Change, Tables, Note string }

func (v *view) policy() *policySection {
	p := v.run.Policy
	if p == nil {
		return nil
	}
	s := &policySection{Truth: newTruthTable(p.Connectivity), Tables: newTables(p.Tables)}
	s.Against, s.Charts = v.against()
	for _, c := range p.Convergence {
		s.Changes = append(s.Changes, newPolicyChangeRow(c))
	}
	for _, c := range p.Compiled {
		s.Compiled = append(s.Compiled, newCompileRow(c))
	}
	return s
}

// against compares the pairs that a run has.
func (v *view) against() (*grid, []template.HTML) {
	g := &grid{Title: "What policies and flows cost"}
	var charts []template.HTML
	var workloads []result.Workload
	for _, w := range v.run.Workloads {
		workloads = append(workloads, w)
		g.Columns = append(g.Columns, w.Title)
	}
	drawings := make([]chart.Ratio, len(workloads))
	for i, w := range workloads {
		drawings[i] = chart.Ratio{Baseline: "the other", Better: w.Better, Text: chart.Text{
			ID: "policy-" + w.Name, Title: w.Title + ": what policies and flows cost",
			Desc: "Each row is the ratio of a contender to the one that it is compared with, the median over the rounds with its 95 % interval. The table beside it has the same figures.",
		}}
	}
	for _, pair := range policyPairs {
		name, of := pair[0], pair[1]
		row := gridRow{Name: name + " ÷ " + of, Highlight: strings.HasPrefix(name, subject)}
		if !slices.ContainsFunc(workloads, func(w result.Workload) bool {
			_, ok := v.within(w.Name, name, w.Name, of, v.placement())
			return ok
		}) {
			continue
		}
		for i, w := range workloads {
			found, ok := v.within(w.Name, name, w.Name, of, v.placement())
			if !ok {
				row.Cells = append(row.Cells, dash)
				drawings[i].Rows = append(drawings[i].Rows, chart.RatioRow{Label: row.Name, Highlight: row.Highlight, Value: "no figure"})
				continue
			}
			cell := ratio(&found.Median)
			if found.Low != nil && found.High != nil {
				cell += " (" + interval(found.Low, found.High) + ")"
			}
			row.Cells = append(row.Cells, cell)
			value := ratio(&found.Median)
			if found.Undecided() {
				value += " ~"
			}
			drawings[i].Rows = append(drawings[i].Rows, chart.RatioRow{
				Label: row.Name, Highlight: row.Highlight, Ratio: &found.Median, Low: found.Low, High: found.High, Value: value, Tip: row.Name + ": " + cell,
			})
		}
		g.Rows = append(g.Rows, row)
	}
	if len(g.Rows) == 0 {
		return nil, nil
	}
	for _, d := range drawings {
		if len(d.Rows) > 0 {
			charts = append(charts, d.SVG())
		}
	}
	return g, charts
}

func newTruthTable(all []result.Connectivity) *truthTable {
	t := &truthTable{}
	type question struct{ what, path, protocol, ends, want string }
	var order []question
	found := map[question]map[string]truthCell{}
	for _, truth := range all {
		if truth.Error != "" {
			t.Notes = append(t.Notes, fact{truth.Network, truth.Error})
		}
		if len(truth.Connections) == 0 {
			continue
		}
		t.Columns = append(t.Columns, truth.Network)
		wrong, known := 0, 0
		var unknown []string
		for _, a := range truth.Connections {
			what := strings.TrimSuffix(fmt.Sprintf("%s, %s, %s", a.Direction, a.Rule, a.Case), ", ")
			q := question{what, pathWords(a.Path), fmt.Sprintf("%s %d", a.Protocol, a.Port), a.From + " → " + a.To, works(a.Allowed)}
			if found[q] == nil {
				found[q] = map[string]truthCell{}
				order = append(order, q)
			}
			if a.Unknown != "" {
				found[q][truth.Network] = truthCell{Text: notKnown, Why: a.Unknown}
				unknown = append(unknown, a.Unknown)
				continue
			}
			known++
			found[q][truth.Network] = truthCell{Text: works(a.Connected), Wrong: a.Connected != a.Allowed}
			if a.Connected != a.Allowed {
				wrong++
			}
		}
		t.Wrong = append(t.Wrong, fact{truth.Network, fmt.Sprintf("%d of %d wrong", wrong, known)})
		if len(unknown) > 0 {
			t.Notes = append(t.Notes, fact{truth.Network, fmt.Sprintf("%d of %d %s; the first: %s", len(unknown), len(truth.Connections), notKnown, unknown[0])})
		}
	}
	if len(order) == 0 && len(t.Notes) == 0 {
		return nil
	}
	for _, q := range order {
		row := truthRow{What: q.what, Path: q.path, Protocol: q.protocol, Ends: q.ends, Want: q.want}
		for _, name := range t.Columns {
			cell, ok := found[q][name]
			if !ok {
				cell.Text = dash
			}
			row.Cells = append(row.Cells, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// notKnown is said of a connection that could not be tried, or that shows nothing by not working.
const notKnown = "not known"

func works(yes bool) string {
	if yes {
		return "works"
	}
	return "does not"
}

func pathWords(p result.Path) string {
	if p == result.SameNode {
		return "same node"
	}
	return "other node"
}

// Verdict says in words with whom a connection works and with whom it does not, and whether that is wrong with anybody.
func (t *truthTable) Verdict(r truthRow) (text string, wrong bool) {
	with := map[string][]string{}
	for i, cell := range r.Cells {
		with[cell.Text] = append(with[cell.Text], t.Columns[i])
		wrong = wrong || cell.Wrong
	}
	var parts []string
	for _, answer := range []string{works(true), works(false), notKnown, dash} {
		switch names := with[answer]; {
		case len(names) == len(t.Columns):
			parts = append(parts, fmt.Sprintf("%s with all %d", answer, len(names)))
		case len(names) > 0:
			parts = append(parts, answer+" with "+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, "; "), wrong
}

func newPolicyChangeRow(c result.PolicyConvergence) changeRow {
	what := map[result.PolicyChange]string{
		result.LabelDenies: "label changed, forbids", result.LabelAllows: "label changed, allows",
		result.PolicyAdded: "policy added, forbids", result.PolicyRemoved: "policy removed, allows",
	}[c.Change]
	if what == "" {
		what = string(c.Change)
	}
	r := changeRow{Name: c.Network, What: what, Among: among(c.Policies, c.Pods), N: fmt.Sprint(len(c.Milliseconds)), P50: dash, P99: dash, Max: dash, Note: c.Error}
	if len(c.Milliseconds) > 0 {
		r.P50, r.Max = quantity(stats.Quantile(c.Milliseconds, 0.5), "ms"), quantity(slices.Max(c.Milliseconds), "ms")
		r.P99 = quantity(stats.Quantile(c.Milliseconds, 0.99), "ms")
	}
	return r
}

func newCompileRow(c result.PolicyCompile) compileRow {
	r := compileRow{
		Name: c.Network, Among: among(c.Policies, c.Pods), Local: group(fmt.Sprint(c.LocalPods)),
		Scratch: dash, Compiler: dash, Change: dash, Tables: dash, Note: c.Source,
	}
	if c.Error != "" {
		r.Note = c.Error
	}
	for _, part := range []struct {
		values []float64
		into   *string
	}{{c.FullMilliseconds, &r.Scratch}, {c.CompilerMilliseconds, &r.Compiler}, {c.ChangeMilliseconds, &r.Change}} {
		if len(part.values) > 0 {
			*part.into = fmt.Sprintf("%s (max %s, n %d)", quantity(stats.Quantile(part.values, 0.5), "ms"), quantity(slices.Max(part.values), "ms"), len(part.values))
		}
	}
	if c.TableBytes > 0 {
		r.Tables = quantity(float64(c.TableBytes)/1e6, "MB")
	}
	return r
}

// newTables shows what was in force with each contender.
func newTables(all []result.PolicyTables) *grid {
	if len(all) == 0 {
		return nil
	}
	g := &grid{Title: "What is in force", Columns: []string{
		"policies", "pods here", "selected", "sets of rules", "addresses", "prefixes", "set × identity", "ports", "memory",
	}}
	for _, t := range all {
		row := gridRow{Name: t.Network}
		for _, n := range []int{t.Policies, t.LocalPods, t.Selected, t.Sets, t.Addresses, t.Prefixes, t.Entries, t.Ports} {
			row.Cells = append(row.Cells, group(fmt.Sprint(n)))
		}
		row.Cells = append(row.Cells, quantity(float64(t.Bytes)/1e6, "MB"))
		g.Rows = append(g.Rows, row)
	}
	return g
}

func among(policies, pods int) string {
	return fmt.Sprintf("%s × %s", group(fmt.Sprint(policies)), group(fmt.Sprint(pods)))
}
