package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
)

// policyPairs are networks that differ in one property: its cost is their ratio.
var policyPairs = [][2]string{
	{policyElsewhere, beeline}, {withPolicy, beeline}, {policyMany, beeline}, {blocksOne, beeline}, {blocksMany, blocksOne},
	{allFlows, beeline}, {withPolicy, flowsOff}, {"ptp-iptables-policy", "ptp"}, {"ptp", beeline}, {"ptp-iptables-policy", withPolicy},
}

// policyChanges names the changes whose convergence is measured.
var policyChanges = map[result.PolicyChange]string{
	result.LabelDenies: "label removed, denied", result.LabelAllows: "label restored, allowed",
	result.PolicyAdded: "policy added, denied", result.PolicyRemoved: "policy removed, allowed",
}

// policy has what the policy suite measures beside its figures.
func (v *view) policy() Section {
	s := Section{ID: "policy", Title: "Policies and flows"}
	p := v.run.Policy
	if p == nil {
		return s
	}
	s.Tables = []*Table{v.policyCost()}
	s.Tables = append(s.Tables, connectivity(p.Connectivity)...)
	t := convergenceTable("Time until new connections obey a change", "policies × pods")
	for _, c := range p.Convergence {
		t.addTimes(c.Network, cmp.Or(policyChanges[c.Change], string(c.Change)), product(c.Policies, c.Pods), c.Milliseconds, c.Error)
	}
	s.Tables = append(s.Tables, t, policyTables(p.Tables), compiled(p.Compiled))
	return s
}

// policyCost has the ratios of the pairs that the run has, by workload.
func (v *view) policyCost() *Table {
	t := &Table{Title: "Cost of policies and flows", Context: "ratio of two networks that differ in one property", Columns: []Column{texts("Networks")}}
	for _, w := range v.run.Workloads {
		t.Columns = append(t.Columns, Column{Title: w.Title, Better: w.Better})
	}
	for _, pair := range policyPairs {
		var row []Cell
		measured := false
		for _, w := range v.run.Workloads {
			i := v.within(w.Name, pair[0], w.Name, pair[1], v.placement())
			measured = measured || i.N > 0
			row = append(row, ratioCell(i))
		}
		if measured {
			t.add(pair[0]+" ÷ "+pair[1], row...)
		}
	}
	for i, w := range v.run.Workloads {
		t.ratioChart(i, chart.Ratio{Baseline: "the other", Better: w.Better, Text: chart.Text{
			ID: "policy-" + w.Name, Title: w.Title + ": cost of policies and flows", Desc: "Each row is the ratio of a network to the one that it is compared with.",
		}})
	}
	return t
}

// The outcomes of a connection.
const (
	connected = "connected"
	blocked   = "blocked"
	unknown   = "not known"
)

func outcome(connects bool) string {
	if connects {
		return connected
	}
	return blocked
}

// connectivity has the number of wrong outcomes per network, and the outcome of each connection.
func connectivity(all []result.Connectivity) []*Table {
	totals := &Table{Title: "Connections with a wrong outcome", Columns: append(columns("Network", "wrong"), texts("note"))}
	each := &Table{Title: "Outcome of each connection", Context: "the same pods and policies in every network",
		Columns: []Column{texts("Connection"), texts("to"), texts("port"), texts("from → to"), texts("expected"), texts("outcome")}}
	type group struct {
		key     result.Connection // without its outcome
		with    map[string][]string
		wrong   bool
		reasons []string
	}
	var groups []*group
	index := map[result.Connection]*group{}
	networks := 0
	for _, c := range all {
		if len(c.Connections) == 0 {
			totals.add(c.Network, none, Cell{Text: c.Error})
			continue
		}
		networks++
		wrong, known, reason := 0, 0, ""
		for _, one := range c.Connections {
			key := one
			key.Connected, key.Unknown = false, ""
			g := index[key]
			if g == nil {
				g = &group{key: key, with: map[string][]string{}}
				index[key], groups = g, append(groups, g)
			}
			if one.Unknown != "" {
				g.with[unknown] = append(g.with[unknown], c.Network)
				g.reasons = append(g.reasons, one.Unknown)
				reason = cmp.Or(reason, one.Unknown)
				continue
			}
			known++
			g.with[outcome(one.Connected)] = append(g.with[outcome(one.Connected)], c.Network)
			if one.Connected != one.Allowed {
				wrong++
				g.wrong = true
			}
		}
		note := c.Error
		if n := len(c.Connections) - known; n > 0 {
			note = strings.TrimPrefix(fmt.Sprintf("%s; %d of %d %s, the first: %s", note, n, len(c.Connections), unknown, reason), "; ")
		}
		totals.add(c.Network, Cell{Text: fmt.Sprintf("%d of %d", wrong, known), Wrong: wrong > 0}, Cell{Text: note})
	}
	for _, g := range groups {
		var parts []string
		seen := 0
		for _, o := range []string{connected, blocked, unknown} {
			names := g.with[o]
			seen += len(names)
			switch {
			case len(names) == networks:
				parts = append(parts, fmt.Sprintf("%s in all %d", o, networks))
			case len(names) > 0:
				parts = append(parts, o+": "+strings.Join(names, ", "))
			}
		}
		if seen < networks {
			parts = append(parts, fmt.Sprintf("not tried in %d", networks-seen))
		}
		k, verdict := g.key, ""
		if g.wrong {
			verdict = "wrong: "
		}
		where := "other node"
		if k.Path == result.SameNode {
			where = "same node"
		}
		name := strings.TrimSuffix(fmt.Sprintf("%s, %s, %s", k.Direction, k.Rule, k.Case), ", ")
		row := append(cells(where, fmt.Sprintf("%s %d", k.Protocol, k.Port), k.From+" → "+k.To, outcome(k.Allowed)),
			Cell{Text: verdict + strings.Join(parts, "; "), Wrong: g.wrong, Missing: len(g.reasons) > 0, Tip: strings.Join(slices.Compact(g.reasons), "; ")})
		each.add(name, row...)
	}
	return []*Table{totals, each}
}

// policyTables has the size of the policy tables of each network.
func policyTables(all []result.PolicyTables) *Table {
	t := &Table{Title: "Policy tables of the server's node (1 MB = 10⁶ bytes)", Columns: columns("Network",
		"policies", "local pods", "selected", "rule sets", "addresses", "prefixes", "set × identity", "ports", "memory")}
	for _, one := range all {
		var row []Cell
		for _, n := range []int{one.Policies, one.LocalPods, one.Selected, one.Sets, one.Addresses, one.Prefixes, one.Entries, one.Ports} {
			row = append(row, text(count(n)))
		}
		t.add(one.Network, append(row, text(megabytes(one.Bytes)))...)
	}
	return t
}

// compiled has the time from policies to kernel tables.
func compiled(all []result.PolicyCompile) *Table {
	t := &Table{Title: "Policies compiled into kernel tables (1 MB = 10⁶ bytes)", Columns: []Column{{Title: "Network", Left: true, Code: true},
		texts("step"), {Title: "policies × pods"}, {Title: "local pods"}, {Title: "P50"}, {Title: "max"}, {Title: "n"}, {Title: "tables"}, texts("note")}}
	for _, c := range all {
		note, tables := cmp.Or(c.Error, c.Source), text(megabytes(c.TableBytes))
		for _, step := range []struct {
			name string
			ms   []float64
		}{{"from an empty start", c.FullMilliseconds}, {"of that the compiler", c.CompilerMilliseconds}, {"one label change", c.ChangeMilliseconds}} {
			if len(step.ms) == 0 && note == "" {
				continue
			}
			row := cells(step.name, product(c.Policies, c.Pods), count(c.LocalPods), quantile(step.ms, 0.5), quantile(step.ms, 1), fmt.Sprint(len(step.ms)))
			t.add(c.Network, append(row, tables, Cell{Text: note})...)
			note, tables = "", Cell{}
		}
	}
	return t
}

// unknownConnections counts the connections with an unknown outcome, of the networks with the prefix.
func unknownConnections(run *result.Run, prefix string) (n int) {
	if run.Policy == nil {
		return 0
	}
	for _, c := range run.Policy.Connectivity {
		for _, one := range c.Connections {
			if strings.HasPrefix(c.Network, prefix) && one.Unknown != "" {
				n++
			}
		}
	}
	return n
}
