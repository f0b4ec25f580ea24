package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// paired is the median of the per-round ratios of contender a to contender b in a figure.
func (f figure) paired(a, b string) stats.Interval {
	base := map[int]float64{}
	for _, p := range f.points(b) {
		if p.value > 0 && !p.discarded {
			base[p.round] = p.value
		}
	}
	var ratios []float64
	for _, p := range f.points(a) {
		if base[p.round] > 0 && !p.discarded {
			ratios = append(ratios, p.value/base[p.round])
		}
	}
	return stats.MedianOf(ratios)
}

func (f figure) points(contender string) []point {
	for _, r := range f.rows {
		if r.contender == contender {
			return r.points
		}
	}
	return nil
}

// find returns the row of a contender that has a figure, or nil.
func (f figure) find(contender string) *row {
	for i := range f.rows {
		if f.rows[i].contender == contender && f.rows[i].summary != nil {
			return &f.rows[i]
		}
	}
	return nil
}

// againResult is what measuring the same network twice says about the machine.
type againResult struct {
	n       int
	worst   float64 // largest |ratio − 1|
	decided int     // intervals that exclude 1, which they should in 5 % of the figures
	widest  *figure // the one with the widest interval; nil where there is no interval
	figures []figure
}

func (v *view) againCheck() againResult {
	var a againResult
	for _, f := range v.figures {
		s := f.again
		if s == nil || s.Ratio == nil {
			continue
		}
		a.n++
		a.figures = append(a.figures, f)
		a.worst = max(a.worst, math.Abs(*s.Ratio-1))
		if s.RatioLow != nil && s.RatioHigh != nil {
			if a.widest == nil || f.strays() > a.widest.strays() {
				a.widest = &f
			}
			if !undecided(s) {
				a.decided++
			}
		}
	}
	return a
}

func (a againResult) sentence() string {
	text := fmt.Sprintf("the medians differ by at most %s", percent(a.worst))
	if a.widest == nil {
		return text + "; too few rounds for an interval."
	}
	if a.decided == 0 {
		text += ", and every interval includes 1."
	} else {
		text += fmt.Sprintf("; %d of %s exclude 1 (about 5 %% do by chance).", a.decided, plural(a.n, "interval"))
	}
	s := a.widest.again
	return text + fmt.Sprintf(" The widest is %s: %s, %s.", interval(s.RatioLow, s.RatioHigh), a.widest.Title, a.widest.heading())
}

// strays is how far from 1 the farther end of the interval of the node against itself lies; 0 without an
// interval. Contenders closer to each other than that may be equal.
func (f figure) strays() float64 {
	s := f.again
	if s == nil || s.RatioLow == nil || s.RatioHigh == nil {
		return 0
	}
	return max(math.Abs(*s.RatioLow-1), math.Abs(*s.RatioHigh-1))
}

// failure is a group of samples that failed for the same reason.
type failure struct {
	Contender, Workload, Heading, Rounds, Error string
}

func (v *view) failures() []failure {
	type key struct {
		figureKey
		contender, message string
	}
	rounds := map[key][]string{}
	var order []key
	for _, s := range v.run.Samples {
		if s.Error == "" || s.Round < 0 {
			continue
		}
		k := key{keyOf(s), s.Network, s.Error}
		if rounds[k] == nil {
			order = append(order, k)
		}
		rounds[k] = append(rounds[k], fmt.Sprint(s.Round))
	}
	var list []failure
	for _, k := range order {
		list = append(list, failure{k.contender, v.workload(k.figureKey).Title, k.heading(), strings.Join(rounds[k], ", "), k.message})
	}
	return list
}

// programTotal is the BPF run time per packet of one contender on one path under one workload.
type programTotal struct {
	contender, workload string
	path                result.Path
	perPacket           float64 // ns
	programs            []programCost
}

type programCost struct {
	name      string
	perPacket float64 // ns of this program per packet of the path
	perRun    float64 // ns
	runs      uint64
	packets   uint64
}

// programTotals adds up what the programs of a path cost per packet. Programs that ran without a packet
// count have no cost per packet and are left out.
func programTotals(run *result.Run) []programTotal {
	var list []programTotal
	for _, p := range run.Programs {
		if p.Packets == 0 {
			continue
		}
		i := slices.IndexFunc(list, func(t programTotal) bool {
			return t.contender == p.Network && t.workload == p.Workload && t.path == p.Path
		})
		if i < 0 {
			list = append(list, programTotal{contender: p.Network, workload: p.Workload, path: p.Path})
			i = len(list) - 1
		}
		cost := programCost{name: p.Name, perPacket: float64(p.Nanoseconds) / float64(p.Packets), runs: p.Runs, packets: p.Packets}
		if p.Runs > 0 {
			cost.perRun = float64(p.Nanoseconds) / float64(p.Runs)
		}
		list[i].perPacket += cost.perPacket
		list[i].programs = append(list[i].programs, cost)
	}
	for _, t := range list {
		slices.SortStableFunc(t.programs, func(a, b programCost) int {
			return cmp.Or(cmp.Compare(journey(a.name), journey(b.name)), cmp.Compare(a.name, b.name))
		})
	}
	return list
}

// journey orders programs as a packet meets them; those it does not know come last.
func journey(program string) int {
	order := []string{"from_pod", "to_wire", "from_wire", "to_pod"}
	if i := slices.Index(order, program); i >= 0 {
		return i
	}
	return len(order)
}

// nanos renders nanoseconds, as microseconds from 1,000 on.
func nanos(ns float64) string {
	if ns >= 1000 {
		return significant(ns/1000) + " µs"
	}
	return significant(ns) + " ns"
}

func micros(us float64) string { return quantity(us, "µs") }

// footprintRow is one contender's cost without traffic, ready to print.
type footprintRow struct {
	contender                               string
	addP50, addP99, delP50, rss, maps, idle string
	pods                                    string
	source                                  result.Footprint
}

func footprintRows(run *result.Run) []footprintRow {
	var rows []footprintRow
	for _, f := range run.Footprints {
		r := footprintRow{contender: f.Network, source: f, addP50: dash, addP99: dash, delP50: dash, rss: dash, maps: dash, idle: dash, pods: dash}
		if len(f.AddMilliseconds) > 0 {
			r.addP50 = quantity(stats.Quantile(f.AddMilliseconds, 0.50), "ms")
			r.addP99 = quantity(stats.Quantile(f.AddMilliseconds, 0.99), "ms")
		}
		if len(f.DelMilliseconds) > 0 {
			r.delP50 = quantity(stats.Quantile(f.DelMilliseconds, 0.50), "ms")
		}
		if f.AgentRSSBytes > 0 {
			r.rss = quantity(float64(f.AgentRSSBytes), "B")
		}
		if f.MapBytes > 0 {
			r.maps = quantity(float64(f.MapBytes), "B")
		}
		if f.IdleCPU != nil {
			r.idle = fmt.Sprintf("%.2f %%", *f.IdleCPU*100)
		}
		if f.Pods > 0 {
			r.pods = fmt.Sprint(f.Pods)
		}
		rows = append(rows, r)
	}
	return rows
}
