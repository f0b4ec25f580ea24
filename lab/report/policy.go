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
	times := convergenceTable("Time until new connections obey a change", "policies × pods")
	for _, c := range p.Convergence {
		times.addTimes(c.Network, policyChanges[c.Change], product(c.Policies, c.Pods), c.Milliseconds, c.Error)
	}
	tables := newTable(Everywhere, "Policy tables of the server's node (1 MB = 10⁶ bytes)", "", "Network",
		"policies", "local pods", "selected", "rule sets", "addresses", "prefixes", "set × identity", "ports", "memory")
	for _, one := range p.Tables {
		tables.add(one.Network, count(one.Policies), count(one.LocalPods), count(one.Selected), count(one.Sets), count(one.Addresses),
			count(one.Prefixes), count(one.Entries), count(one.Ports), megabytes(one.Bytes))
	}
	s.Tables = []*Table{v.policyCost(), wrongConnections(p.Connectivity), eachConnection(p.Connectivity), times, tables, compiled(p.Compiled)}
	return s
}

// policyCost has the ratios of the pairs that the run has, by workload.
func (v *view) policyCost() *Table {
	t := newTable(Everywhere, "Cost of policies and flows", "ratio of two networks that differ in one property", "Networks")
	for _, w := range v.run.Workloads {
		t.Columns = append(t.Columns, better(w.Title, w.Better))
	}
	for _, pair := range policyPairs {
		var row []any
		for _, w := range v.run.Workloads {
			row = append(row, v.within(w.Name, pair[0], w.Name, pair[1], v.placement()))
		}
		t.addMeasured(pair[0]+" ÷ "+pair[1], row...)
	}
	for i, w := range v.run.Workloads {
		t.ratioChart(i, chart.Rows{Baseline: "the other", Text: chart.Text{
			ID: "policy-" + w.Name, Title: w.Title + ": cost of policies and flows", Desc: "Each row is the ratio of a network to the one that it is compared with.",
		}}, w.Better)
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

// tally counts connections by what is known of their outcome. reason is why the first unknown one is unknown.
func tally(list []result.Connection) (wrong, known, unclear int, reason string) {
	for _, c := range list {
		switch {
		case c.Unknown != "":
			unclear++
			reason = cmp.Or(reason, c.Unknown)
			continue
		case c.Connected != c.Allowed:
			wrong++
		}
		known++
	}
	return wrong, known, unclear, reason
}

// wrongConnections has the number of wrong outcomes per network.
func wrongConnections(all []result.Connectivity) *Table {
	t := newTable(Everywhere, "Connections with a wrong outcome", "", "Network", "wrong", "note")
	for _, c := range all {
		if len(c.Connections) == 0 {
			t.add(c.Network, none, c.Error)
			continue
		}
		wrong, known, unclear, reason := tally(c.Connections)
		note := c.Error
		if unclear > 0 {
			note = strings.TrimPrefix(fmt.Sprintf("%s; %d of %d %s, the first: %s", note, unclear, len(c.Connections), unknown, reason), "; ")
		}
		t.add(c.Network, Cell{Text: fmt.Sprintf("%d of %d", wrong, known), Class: map[bool]string{true: "wrong"}[wrong > 0]}, note)
	}
	return t
}

// eachConnection has the outcome of each connection in all networks.
func eachConnection(all []result.Connectivity) *Table {
	t := newTable(Everywhere, "Outcome of each connection", "the same pods and policies in every network",
		"Connection", "to", "port", "from → to", "expected", "outcome")
	var order []result.Connection // without their outcomes
	outcomes := map[result.Connection]map[string][]string{}
	reasons := map[result.Connection][]string{}
	networks := 0
	for _, c := range all {
		networks += min(len(c.Connections), 1)
		for _, one := range c.Connections {
			got := outcome(one.Connected)
			key := one
			key.Connected, key.Unknown = false, ""
			if one.Unknown != "" {
				got = unknown
				reasons[key] = append(reasons[key], one.Unknown)
			}
			if outcomes[key] == nil {
				outcomes[key] = map[string][]string{}
				order = append(order, key)
			}
			outcomes[key][got] = append(outcomes[key][got], c.Network)
		}
	}
	for _, k := range order {
		var parts []string
		untried := networks
		for _, o := range []string{connected, blocked, unknown} {
			names := outcomes[k][o]
			untried -= len(names)
			switch {
			case len(names) == networks:
				parts = append(parts, fmt.Sprintf("%s in all %d", o, networks))
			case len(names) > 0:
				parts = append(parts, o+": "+strings.Join(names, ", "))
			}
		}
		if untried > 0 {
			parts = append(parts, fmt.Sprintf("not tried in %d", untried))
		}
		c := Cell{Text: strings.Join(parts, "; "), Tip: strings.Join(slices.Compact(reasons[k]), "; ")}
		switch {
		case len(outcomes[k][outcome(!k.Allowed)]) > 0:
			c.Text, c.Class = "wrong: "+c.Text, "wrong"
		case c.Tip != "":
			c.Class = "missing"
		}
		where := map[result.Path]string{result.SameNode: "same node", result.CrossNode: "other node"}[k.Path]
		name := strings.TrimSuffix(fmt.Sprintf("%s, %s, %s", k.Direction, k.Rule, k.Case), ", ")
		t.add(name, where, fmt.Sprintf("%s %d", k.Protocol, k.Port), k.From+" → "+k.To, outcome(k.Allowed), c)
	}
	return t
}

// compiled has the time from policies to kernel tables.
func compiled(all []result.PolicyCompile) *Table {
	t := newTable(Everywhere, "Policies compiled into kernel tables (1 MB = 10⁶ bytes)", "", "Network",
		"step", "policies × pods", "local pods", "P50", "max", "n", "tables", "note")
	for _, c := range all {
		for _, step := range []struct {
			name string
			ms   []float64
		}{{"from an empty start", c.FullMilliseconds}, {"of that the compiler", c.CompilerMilliseconds}, {"one label change", c.ChangeMilliseconds}} {
			t.add(c.Network, step.name, product(c.Policies, c.Pods), count(c.LocalPods), quantile(step.ms, 0.5), quantile(step.ms, 1), len(step.ms),
				megabytes(c.TableBytes), cmp.Or(c.Error, c.Source))
		}
	}
	return t
}
