package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/lab/result"
)

// The contenders that mean something to a report: what others are divided by, and its A/A partner.
const (
	baseline = "node"
	again    = "node/again"
)

// view is a run arranged for reading; every rendering starts from it.
type view struct {
	run       *result.Run
	figures   []figure
	discarded map[int]string // round → reason
}

// figureKey names one comparison: everything in it was measured the same way.
type figureKey struct {
	workload  string
	path      result.Path
	placement result.Placement
	procs     int
}

func keyOf(s result.Sample) figureKey {
	return figureKey{s.Workload, s.Path, s.Placement, s.Procs}
}

// counts reports whether a sample's values go into figures: no warm-up, no error, no discarded round.
func (v *view) counts(s result.Sample) bool {
	return s.Round >= 0 && s.Error == "" && s.Discarded == "" && v.discarded[s.Round] == ""
}

// discardedTurns says how many turns of single contenders were discarded; empty for none.
func (v *view) discardedTurns() string {
	n := 0
	for _, r := range v.run.Rounds {
		for _, t := range r.Turns {
			if t.Discarded != "" {
				n++
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; turns of single contenders that were discarded: %d", n)
}

// figure is one comparison of all contenders.
type figure struct {
	figureKey
	result.Workload
	rows  []row
	again *result.Summary // the A/A partner, nil where there is none
}

// row is one contender in a figure: a summary, or the reason why there is none.
type row struct {
	contender   string
	summary     *result.Summary
	unsupported string
	tried       int
	errors      []string // of failed samples, without repetitions
	failed      int
	points      []point
	wire        *float64 // ratio of a same-node figure to the baseline's cross-node figure
}

// point is one sample of the figure's metric.
type point struct {
	round     int
	value     float64
	discarded bool
}

func newView(run *result.Run) *view {
	v := &view{run: run, discarded: map[int]string{}}
	for _, r := range run.Rounds {
		if r.Discarded != "" {
			v.discarded[r.Index] = r.Discarded
		}
	}
	for _, key := range v.keys() {
		if f := v.figure(key); len(f.rows) > 0 {
			v.figures = append(v.figures, f)
		}
	}
	return v
}

// keys lists the comparisons of the run in reading order: workloads as the run has them, across nodes
// before same node, one core before spread.
func (v *view) keys() []figureKey {
	seen := map[figureKey]bool{}
	for _, s := range v.run.Samples {
		seen[keyOf(s)] = true
	}
	for _, s := range v.run.Summary {
		seen[summaryKey(s)] = true
	}
	order := map[string]int{}
	for i, w := range v.run.Workloads {
		order[w.Name] = i + 1
	}
	rank := func(k figureKey) int {
		if n := order[k.workload]; n > 0 {
			return n
		}
		return len(order) + 1
	}
	keys := make([]figureKey, 0, len(seen))
	for k := range seen {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b figureKey) int {
		return cmp.Or(
			cmp.Compare(a.placement, b.placement), // "one-core" < "spread"
			cmp.Compare(a.path, b.path),           // "cross-node" < "same-node"
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.workload, b.workload),
			cmp.Compare(a.procs, b.procs),
		)
	})
	return keys
}

func (v *view) figure(key figureKey) figure {
	f := figure{figureKey: key, Workload: v.workload(key)}
	for _, c := range v.contenders() {
		r := row{contender: c.Name, unsupported: c.Unsupported, summary: v.summary(key, c.Name, f.Metric)}
		v.collect(&r, f)
		if s := v.summary(key, c.Name, f.Metric+result.VersusWire); s != nil {
			r.wire = s.Ratio
		}
		if r.summary == nil && r.unsupported == "" && r.tried == 0 {
			continue // this contender was not asked for this workload
		}
		if c.Name == again {
			f.again = r.summary
			continue
		}
		f.rows = append(f.rows, r)
	}
	slices.SortStableFunc(f.rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.rank(), b.rank()), compareRows(a, b, f.Better)) })
	return f
}

// rank puts the baseline first and rows without a figure last.
func (r row) rank() int {
	switch {
	case r.contender == baseline:
		return 0
	case r.summary != nil && r.summary.Ratio != nil:
		return 1
	case r.summary != nil:
		return 2
	case r.unsupported == "":
		return 3
	}
	return 4
}

// compareRows orders rows of the same rank from best to worst: by ratio, or by median where there is none.
func compareRows(a, b row, better string) int {
	if a.summary == nil || b.summary == nil {
		return 0
	}
	x, y := a.summary.Median, b.summary.Median
	if a.summary.Ratio != nil && b.summary.Ratio != nil {
		x, y = *a.summary.Ratio, *b.summary.Ratio
	}
	if better == "lower" {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(y, x)
}

// workload finds the description of a figure's workload, or makes one from the summary for a file without.
func (v *view) workload(key figureKey) result.Workload {
	for _, w := range v.run.Workloads {
		if w.Name == key.workload {
			if w.Title == "" {
				w.Title = w.Name
			}
			return w
		}
	}
	w := result.Workload{Name: key.workload, Title: key.workload, Better: "higher"}
	for _, s := range v.run.Summary {
		if s.Workload == key.workload {
			w.Metric, w.Unit, w.Better = s.Metric, s.Unit, s.Better
			break
		}
	}
	return w
}

// contenders lists what the run compared, also contenders that only samples or summaries mention.
func (v *view) contenders() []result.Network {
	list := slices.Clone(v.run.Networks)
	known := map[string]bool{}
	for _, c := range list {
		known[c.Name] = true
	}
	add := func(name string) {
		if !known[name] {
			known[name] = true
			list = append(list, result.Network{Name: name})
		}
	}
	for _, s := range v.run.Summary {
		add(s.Network)
	}
	for _, s := range v.run.Samples {
		add(s.Network)
	}
	return list
}

func (v *view) summary(key figureKey, contender, metric string) *result.Summary {
	for i := range v.run.Summary {
		s := &v.run.Summary[i]
		if s.Network == contender && s.Metric == metric &&
			key == summaryKey(*s) {
			return s
		}
	}
	return nil
}

// collect fills a row with the samples of the figure's contender.
func (v *view) collect(r *row, f figure) {
	for _, s := range v.run.Samples {
		if s.Round < 0 || s.Network != r.contender || f.figureKey != keyOf(s) { // negative rounds warm up
			continue
		}
		if s.Discarded != "" && s.Error != "" {
			continue // it was taken again
		}
		r.tried++
		if s.Error != "" {
			r.failed++
			if !slices.Contains(r.errors, s.Error) {
				r.errors = append(r.errors, s.Error)
			}
			continue
		}
		if value, ok := s.Values[f.Metric]; ok {
			r.points = append(r.points, point{s.Round, value, s.Discarded != "" || v.discarded[s.Round] != ""})
		}
	}
}

// undecided reports whether a ratio's interval includes "no difference", or is missing.
func undecided(s *result.Summary) bool {
	return s != nil && s.Ratio != nil && (s.RatioLow == nil || s.RatioHigh == nil || *s.RatioLow <= 1 && *s.RatioHigh >= 1)
}

// mark is the character behind a ratio: "~" where no difference was decided.
func mark(s *result.Summary) string {
	if undecided(s) {
		return "~"
	}
	return ""
}

// heading is what the figure compares, without its workload's title: "2 processes · cross-node · one-core".
func (k figureKey) heading() string {
	return plural(max(k.procs, 1), "process") + " · " + string(k.path) + " · " + string(k.placement)
}
