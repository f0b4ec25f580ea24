package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// subject is the contender that the findings are about, where the run has it.
const subject = "beeline"

// netfilter is the second baseline: a node with connection tracking and Service rules.
const netfilter = "node+netfilter"

// finding is a sentence that the data of this run supports; Lead is its point, Detail the figures.
type finding struct {
	Lead, Detail string
}

// Text is the whole finding in one line.
func (f finding) Text() string { return strings.TrimSpace(f.Lead + " " + f.Detail) }

// mostFindings is how many findings a report opens with.
const mostFindings = 3

// findings picks the most important statements, in a fixed order of importance; each is left out where
// the run has no data for it.
func (v *view) findings() []finding {
	if v.run.Cluster != nil {
		return v.clusterFindings()
	}
	var list []finding
	if f := promiseFinding(v.promises()); f != nil {
		return []finding{*f}
	}
	who := v.protagonist()
	if who == "" {
		return nil
	}
	for _, f := range []*finding{
		v.againstNode(who), v.againstOthers(who), v.againstNetfilter(who), v.bpfCost(who), v.addCost(who),
	} {
		if f != nil && len(list) < mostFindings {
			list = append(list, *f)
		}
	}
	return list
}

// protagonist is beeline, or in a run without it the contender that comes closest to the node.
func (v *view) protagonist() string {
	best, bestMean := "", math.Inf(-1)
	for _, c := range v.contenders() {
		if c.Name == baseline || c.Name == again {
			continue
		}
		ratios := v.ratiosTo(baseline, c.Name)
		if len(ratios) == 0 {
			continue
		}
		if c.Name == subject {
			return subject
		}
		sum := 0.0
		for _, r := range ratios {
			sum += math.Log(r.Median)
		}
		if mean := sum / float64(len(ratios)); mean > bestMean {
			best, bestMean = c.Name, mean
		}
	}
	return best
}

// named is an estimate with the figure it belongs to.
type named struct {
	stats.Interval
	figure figure
}

// ratiosTo lists, over the leading figures, how many times as good contender who is as the other: rates as
// they are, times turned round, so that above 1 is always better.
func (v *view) ratiosTo(other, who string) []named {
	var list []named
	for _, f := range v.leading() {
		var e stats.Interval
		if other == baseline {
			if r := f.find(who); r != nil && r.summary.Ratio != nil && *r.summary.Ratio > 0 {
				e = stats.Interval{Median: *r.summary.Ratio, Low: r.summary.RatioLow, High: r.summary.RatioHigh, N: r.summary.N}
			}
		} else {
			e = f.paired(who, other)
		}
		if e.Median > 0 {
			list = append(list, named{oriented(e, f.Better), f})
		}
	}
	return list
}

// oriented turns ratios of times round.
func oriented(e stats.Interval, better string) stats.Interval {
	if better != "lower" {
		return e
	}
	e.Median = 1 / e.Median
	if e.Low != nil && e.High != nil && *e.Low > 0 {
		low, high := 1 / *e.High, 1 / *e.Low
		e.Low, e.High = &low, &high
	}
	return e
}

// leading are the figures that findings speak of: the first placement and path of the run (across nodes,
// on one core, where it has them), with the fewest processes.
func (v *view) leading() []figure {
	groups := groupFigures(v.figures)
	if len(groups) == 0 {
		return nil
	}
	fewest := math.MaxInt
	for _, f := range groups[0] {
		fewest = min(fewest, f.procs)
	}
	return slices.DeleteFunc(slices.Clone(groups[0]), func(f figure) bool { return f.procs > fewest || f.offered() })
}

// offered reports whether every contender reaches what the node reaches, to 0.5 %: then the workload offers
// no more than all of them carry, and its figure compares nothing.
func (f figure) offered() bool {
	return !slices.ContainsFunc(f.rows, func(r row) bool {
		return r.contender != baseline && r.summary != nil && r.summary.Ratio != nil && math.Abs(*r.summary.Ratio-1) > 0.005
	})
}

func extremes(list []named) (low, high named) {
	byMedian := func(a, b named) int { return cmp.Compare(a.Median, b.Median) }
	return slices.MinFunc(list, byMedian), slices.MaxFunc(list, byMedian)
}

// span renders "0.865 to 0.894", or one number where both are the same to three decimals.
func span(low, high named) string {
	a, b := ratio(&low.Median), ratio(&high.Median)
	if a == b {
		return a
	}
	return a + " to " + b
}

func (v *view) where() string {
	f := v.figures[0]
	place := map[result.Path]string{result.CrossNode: "across nodes", result.SameNode: "within a node"}[f.path]
	return cmp.Or(place, string(f.path))
}

func (v *view) againstNode(who string) *finding {
	list := v.ratiosTo(baseline, who)
	if len(list) == 0 {
		return nil
	}
	low, high := extremes(list)
	if len(list) == 1 {
		return &finding{
			Lead:   fmt.Sprintf("%s reaches %.3f of the bare node's speed %s.", who, low.Median, v.where()),
			Detail: fmt.Sprintf("Measured with %s.", low.figure.Title),
		}
	}
	detail := fmt.Sprintf("Over %s; lowest in %s, highest in %s", plural(len(list), "workload"), low.figure.Title, high.figure.Title)
	open := 0
	for _, r := range list {
		if r.Undecided() {
			open++
		}
	}
	if open > 0 {
		detail += fmt.Sprintf("; no difference from the node decided in %d", open)
	}
	return &finding{
		Lead:   fmt.Sprintf("%s reaches %s of the bare node's speed %s.", who, span(low, high), v.where()),
		Detail: detail + ".",
	}
}

func (v *view) againstNetfilter(who string) *finding {
	if who == netfilter {
		return nil
	}
	list := v.ratiosTo(netfilter, who)
	if len(list) == 0 {
		return nil
	}
	ahead, behind := 0, 0
	for _, r := range list {
		switch {
		case r.Undecided():
		case r.Median > 1:
			ahead++
		default:
			behind++
		}
	}
	low, high := extremes(list)
	share := fmt.Sprintf("in %d of %s", ahead, plural(len(list), "workload"))
	if ahead == len(list) {
		share = fmt.Sprintf("in each of %s", plural(len(list), "workload"))
	}
	detail := span(low, high) + " times its speed"
	if behind > 0 {
		detail += fmt.Sprintf("; behind in %d", behind)
	}
	if open := len(list) - ahead - behind; open > 0 {
		detail += fmt.Sprintf("; no difference decided in %d", open)
	}
	return &finding{
		Lead:   fmt.Sprintf("Against a node with connection tracking and Service rules, %s is ahead %s.", who, share),
		Detail: detail + ".",
	}
}

// againstOthers ranks the pod networks by who is decidedly the fastest how often.
func (v *view) againstOthers(who string) *finding {
	wins, networks, figures, open := map[string]int{}, map[string]bool{}, 0, 0
	for _, f := range v.leading() {
		var rows []row
		for _, r := range f.rows {
			if r.summary != nil && r.contender != baseline && r.contender != netfilter {
				rows = append(rows, r)
				networks[r.contender] = true
			}
		}
		if len(rows) < 2 {
			continue
		}
		figures++
		if f.paired(rows[0].contender, rows[1].contender).Undecided() {
			open++
			continue
		}
		wins[rows[0].contender]++
	}
	if figures == 0 || !networks[who] {
		return nil
	}
	lead := fmt.Sprintf("Of %s over %s, ", plural(len(networks), "pod network"), plural(figures, "workload"))
	switch {
	case open == figures:
		lead += "none is decidedly the fastest in any."
	case open == 0 && len(wins) == 1:
		lead += fmt.Sprintf("%s is the fastest in each.", ranked(wins)[0])
	default:
		var parts []string
		for _, name := range ranked(wins) {
			parts = append(parts, fmt.Sprintf("%s in %d", name, wins[name]))
		}
		if open > 0 {
			parts = append(parts, fmt.Sprintf("undecided in %d", open))
		}
		lead += "the fastest is: " + strings.Join(parts, ", ") + "."
	}
	detail := ""
	if next, e := v.nearest(who, networks); next != "" {
		detail = fmt.Sprintf("Of the networks that %s beats in every workload, the nearest is %s: %s.", who, next, e)
	}
	return &finding{
		Lead:   lead,
		Detail: detail,
	}
}

// ranked lists names by what they count, the most first.
func ranked(counts map[string]int) []string {
	return slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

// nearest finds the strongest network that who is decidedly faster than in every leading figure.
func (v *view) nearest(who string, networks map[string]bool) (name, text string) {
	best := math.Inf(1)
	for _, c := range v.contenders() {
		if c.Name == who || !networks[c.Name] {
			continue
		}
		list := v.ratiosTo(c.Name, who)
		if len(list) == 0 || slices.ContainsFunc(list, func(n named) bool { return n.Undecided() || n.Median <= 1 }) {
			continue
		}
		low, high := extremes(list)
		if low.Median < best {
			best, name = low.Median, c.Name
			text = span(low, high) + " times its speed"
		}
	}
	return name, text
}

func (v *view) bpfCost(who string) *finding {
	worst := programTotal{}
	for _, t := range programTotals(v.run) {
		if t.contender == who && t.perPacket > worst.perPacket {
			worst = t
		}
	}
	if worst.perPacket == 0 {
		return nil
	}
	return &finding{
		Lead:   fmt.Sprintf("All BPF programs of %s together take %s per one-way packet.", who, nanos(worst.perPacket)),
		Detail: fmt.Sprintf("The most over all measured paths: %s, %s.", v.workload(figureKey{workload: worst.workload}).Title, worst.path),
	}
}

func (v *view) addCost(who string) *finding {
	for _, r := range footprintRows(v.run) {
		if r.contender == who && r.addP50 != dash {
			return &finding{
				Lead:   fmt.Sprintf("Adding a pod to %s takes %s (P50; P99 %s).", who, r.addP50, r.addP99),
				Detail: fmt.Sprintf("From the start of the plugin to its result, %s.", plural(len(r.source.AddMilliseconds), "pod")),
			}
		}
	}
	return nil
}
