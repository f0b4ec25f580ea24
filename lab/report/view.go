package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// beeline is the name of the network that this project provides.
const beeline = "beeline"

func isBeeline(network string) bool { return strings.HasPrefix(network, beeline) }

// view is a run, arranged by figures. All tables are built from it.
type view struct {
	run       *result.Run
	figures   []figure
	discarded map[int]bool // rounds
}

// figure compares all networks in one workload, path, placement and number of processes.
type figure struct {
	key  stats.Key
	work result.Workload
	rows []networkRow
}

// networkRow is one network in a figure: a summary, or the reason why there is none.
type networkRow struct {
	network     string
	summary     *result.Summary
	unsupported string
	tried       int
	failed      int
	errors      []string // of failed samples, without repetitions
	points      []point
	wire        *float64 // ratio of a same-node figure to the baseline's cross-node figure
}

// point is a sample with its value of the figure's metric.
type point struct {
	*result.Sample
	value     float64
	discarded bool
}

func newView(run *result.Run) *view {
	v := &view{run: run, discarded: map[int]bool{}}
	for _, r := range run.Rounds {
		if r.Discarded != "" {
			v.discarded[r.Index] = true
		}
	}
	for _, key := range v.keys() {
		if f := v.figure(key); slices.ContainsFunc(f.rows, func(r networkRow) bool { return r.unsupported == "" }) {
			v.figures = append(v.figures, f)
		}
	}
	return v
}

func summaryKey(s *result.Summary) stats.Key {
	return stats.Key{Workload: s.Workload, Path: s.Path, Placement: s.Placement, Procs: s.Procs}
}

// keys lists the comparisons of the run: one-core before spread, cross-node before same-node, workloads in their order.
func (v *view) keys() []stats.Key {
	seen := map[stats.Key]bool{}
	for i := range v.run.Samples {
		seen[stats.KeyOf(&v.run.Samples[i])] = true
	}
	for i := range v.run.Summary {
		seen[summaryKey(&v.run.Summary[i])] = true
	}
	rank := map[string]int{}
	for i, w := range v.run.Workloads {
		rank[w.Name] = i - len(v.run.Workloads) // before those without a description
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b stats.Key) int {
		return cmp.Or(cmp.Compare(a.Placement, b.Placement), cmp.Compare(a.Path, b.Path), cmp.Compare(rank[a.Workload], rank[b.Workload]),
			cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Procs, b.Procs))
	})
}

func (v *view) figure(key stats.Key) figure {
	f := figure{key: key, work: v.workload(key.Workload)}
	for _, n := range v.networks() {
		r := networkRow{network: n.Name, unsupported: n.Unsupported, summary: v.summary(key, n.Name, f.work.Metric)}
		v.collect(&r, f)
		if s := v.summary(key, n.Name, f.work.Metric+result.VersusWire); s != nil {
			r.wire = s.Ratio
		}
		if r.summary == nil && r.unsupported == "" && r.tried == 0 {
			continue // the run did not include this network in this workload
		}
		f.rows = append(f.rows, r)
	}
	slices.SortStableFunc(f.rows, func(a, b networkRow) int {
		return cmp.Compare(placeOf(a.network, ratioOf(a.summary), f.work.Better), placeOf(b.network, ratioOf(b.summary), f.work.Better))
	})
	return f
}

// networks are those of the run, with the second measurement of the baseline.
func (v *view) networks() (list []result.Network) {
	for _, n := range v.run.Networks {
		list = append(list, n)
		if n.Name == stats.Baseline {
			list = append(list, result.Network{Name: stats.Again})
		}
	}
	return list
}

// placeOf orders the rows of a figure: the baseline, ratios from best to worst, networks without a ratio.
func placeOf(network string, i stats.Interval, better string) float64 {
	switch {
	case network == stats.Baseline:
		return math.Inf(-1)
	case i.N == 0:
		return math.Inf(1)
	case better == "lower":
		return i.Median
	default:
		return -i.Median
	}
}

// collect fills a row with the samples of its network. Samples with a negative round are warm-up.
func (v *view) collect(r *networkRow, f figure) {
	for i := range v.run.Samples {
		s := &v.run.Samples[i]
		if s.Round < 0 || s.Network != r.network || f.key != stats.KeyOf(s) || s.Discarded != "" && s.Error != "" {
			continue
		}
		r.tried++
		if s.Error != "" {
			r.failed++
			if !slices.Contains(r.errors, s.Error) {
				r.errors = append(r.errors, s.Error)
			}
			continue
		}
		if value, ok := s.Values[f.work.Metric]; ok {
			r.points = append(r.points, point{s, value, s.Discarded != "" || v.discarded[s.Round]})
		}
	}
}

// workload returns the description of a workload, or only its name if the file has no description.
func (v *view) workload(name string) result.Workload {
	for _, w := range v.run.Workloads {
		if w.Name == name {
			w.Title = cmp.Or(w.Title, w.Name)
			return w
		}
	}
	return result.Workload{Name: name, Title: name, Better: "higher"}
}

// podNetworks are the networks that came up, without the baseline.
func (v *view) podNetworks() []string {
	var names []string
	for _, n := range v.run.Networks {
		if n.Name != stats.Baseline && n.Unsupported == "" {
			names = append(names, n.Name)
		}
	}
	return names
}

func (v *view) summary(key stats.Key, network, metric string) *result.Summary {
	for i := range v.run.Summary {
		s := &v.run.Summary[i]
		if s.Network == network && s.Metric == metric && key == summaryKey(s) {
			return s
		}
	}
	return nil
}

// row is the row of a network, or one without values.
func (f figure) row(network string) networkRow {
	for _, r := range f.rows {
		if r.network == network {
			return r
		}
	}
	return networkRow{}
}

// paired is the median of the ratios a ÷ b within a round.
func paired(a, b []point) stats.Interval {
	base := map[int]float64{}
	for _, p := range b {
		if p.value > 0 && !p.discarded {
			base[p.Round] = p.value
		}
	}
	var ratios []float64
	for _, p := range a {
		if base[p.Round] > 0 && !p.discarded {
			ratios = append(ratios, p.value/base[p.Round])
		}
	}
	return stats.MedianOf(ratios)
}

// within is the median of the per-round ratios of one network's figure to another's, of the same or another workload.
func (v *view) within(workload, network, ofWorkload, of string, placement result.Placement) stats.Interval {
	a, b := v.figureOf(workload, placement), v.figureOf(ofWorkload, placement)
	return paired(a.row(network).points, b.row(of).points)
}

// median is the median of a network's figure over the rounds.
func (v *view) median(workload, network string, placement result.Placement) stats.Interval {
	var values []float64
	for _, p := range v.figureOf(workload, placement).row(network).points {
		if !p.discarded {
			values = append(values, p.value)
		}
	}
	return stats.MedianOf(values)
}

// figureOf returns the figure of one process across nodes, or a figure without rows.
func (v *view) figureOf(workload string, placement result.Placement) figure {
	return v.figureOn(workload, result.CrossNode, placement)
}

// figureOn returns the figure of one process on a path, or a figure without rows.
func (v *view) figureOn(workload string, path result.Path, placement result.Placement) figure {
	for _, f := range v.figures {
		if f.key.Workload == workload && f.key.Placement == placement && f.key.Path == path && f.key.Procs <= 1 {
			return f
		}
	}
	return figure{}
}

// placement is the first placement of the run.
func (v *view) placement() result.Placement {
	if len(v.run.Settings.Placement) > 0 {
		return result.Placement(v.run.Settings.Placement[0])
	}
	return result.OneCore
}

// ratioOf is the ratio to the baseline of a summary, as an interval without values if there is none.
func ratioOf(s *result.Summary) stats.Interval {
	if s == nil || s.Ratio == nil {
		return stats.Interval{}
	}
	return stats.Interval{Median: *s.Ratio, Low: s.RatioLow, High: s.RatioHigh, N: max(s.N, 1)}
}

// quantityOf renders the median of a summary; the unit of the summary takes precedence over the workload's.
func (f figure) quantityOf(s *result.Summary) string {
	return quantity(s.Median, cmp.Or(s.Unit, f.work.Unit))
}

// context is what the figure compares, without the workload: "2 processes · cross-node · one-core".
func context(k stats.Key) string {
	return plural(max(k.Procs, 1), "process") + " · " + string(k.Path) + " · " + string(k.Placement)
}

// title is the workload's title with the number of processes, if there are several.
func (f figure) title() string {
	if f.key.Procs > 1 {
		return fmt.Sprintf("%s ×%d", f.work.Title, f.key.Procs)
	}
	return f.work.Title
}

// failed begins the note of a network whose samples failed.
const failed = "failed"

// failure is the reason why a row has no figure.
func (r networkRow) failure() string {
	if r.failed == 0 {
		return "no figure"
	}
	return fmt.Sprintf(failed+" %d of %d: %s", r.failed, r.tried, strings.Join(r.errors, "; "))
}

// unitNote is the figure's unit and which way is better.
func (f figure) unitNote() string {
	unit := f.work.Unit
	if unit == "/s" {
		unit = "per second"
	}
	return strings.TrimPrefix(unit+", "+cmp.Or(f.work.Better, "higher")+" is better", ", ")
}

// anchor is the ID of the figure's table.
func (f figure) anchor() string {
	id := fmt.Sprintf("f-%s-%s-%s-%d", f.key.Workload, f.key.Path, f.key.Placement, f.key.Procs)
	return regexp.MustCompile(`[^a-z0-9_-]`).ReplaceAllString(strings.ToLower(id), "-")
}
