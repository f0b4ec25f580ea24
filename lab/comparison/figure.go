package comparison

import (
	"fmt"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Key says what a figure is about. Figures of two runs with the same key are compared.
type Key struct {
	Network string `json:"network"`
	// Build is the network of the other build that Network is compared with, in a comparison of builds within one run.
	Build string `json:"build,omitempty"`
	// Name is the workload, or one of the costs without traffic (costs.go).
	Name string `json:"name"`
	// Metric is one of result.Metrics, or BPFTime; costs without traffic have none.
	Metric string `json:"metric,omitempty"`
	// Path, Placement and Procs are those of the workload's samples.
	Path      result.Path      `json:"path,omitempty"`
	Placement result.Placement `json:"placement,omitempty"`
	Procs     int              `json:"procs,omitempty"`
	// Objects is the number of Services or NetworkPolicies of the cluster, for costs that depend on it.
	Objects int `json:"objects,omitempty"`
}

// Quantity says what the values of a figure mean.
type Quantity struct {
	Unit string `json:"unit"`
	// Better is "higher", "lower", or empty if neither is better.
	Better string `json:"better,omitempty"`
	// Headline tells the metric that a workload is about, and costs without traffic, from the other metrics.
	Headline bool `json:"headline"`
}

// Value is a median with the bounds of its interval of at least 95 %. They are nil if there are too few values.
type Value struct {
	Median float64  `json:"median"`
	Low    *float64 `json:"low"`
	High   *float64 `json:"high"`
	// Once means that there is one value by its nature, like the memory of BPF maps: it never has an interval.
	Once bool `json:"once,omitempty"`
}

// Figure is one figure of a run.
type Figure struct {
	Key
	Quantity
	Side
}

// Interval is the value with its bounds; without one it has no values.
func (v *Value) Interval() stats.Interval {
	if v == nil {
		return stats.Interval{}
	}
	return stats.Interval{Median: v.Median, Low: v.Low, High: v.High, N: 1}
}

// Decided reports whether the interval excludes 1.
func (v *Value) Decided() bool { return !v.Interval().Undecided() }

// Samples is the comparison that the samples of a workload belong to.
func (k Key) Samples() stats.Key {
	return stats.Key{Workload: k.Name, Path: k.Path, Placement: k.Placement, Procs: k.Procs}
}

// Figures lists all that a run has measured, in its order: the workloads, then what networks cost without traffic.
func Figures(run *result.Run) []Figure {
	var list []Figure
	for i := range run.Summary {
		s := &run.Summary[i]
		list = append(list, Figure{
			Key:      keyOf(s),
			Quantity: Quantity{s.Unit, s.Better, s.Metric == headline(run, s.Workload)},
			Side:     Side{Value{Median: s.Median, Low: s.Low, High: s.High, Once: merged(s)}, ratioOf(s)},
		})
	}
	return append(append(list, programs(run)...), costs(run)...)
}

// merged reports whether a summary is a percentile of the merged histograms of all rounds: it has no interval.
func merged(s *result.Summary) bool {
	switch s.Metric {
	case result.RTTP50, result.RTTP90, result.RTTP99, result.RTTP999:
		return s.Low == nil
	}
	return false
}

func keyOf(s *result.Summary) Key {
	return Key{Network: s.Network, Name: s.Workload, Metric: s.Metric, Path: s.Path, Placement: s.Placement, Procs: s.Procs}
}

func ratioOf(s *result.Summary) *Value {
	if s.Ratio == nil {
		return nil
	}
	return &Value{Median: *s.Ratio, Low: s.RatioLow, High: s.RatioHigh}
}

// headline is the metric that a workload is about.
func headline(run *result.Run, workload string) string {
	for _, w := range run.Workloads {
		if w.Name == workload {
			return w.Metric
		}
	}
	return ""
}

// of makes a figure of several values; without values it has none.
func of(k Key, unit string, values []float64) []Figure {
	m := stats.MedianOf(values)
	if m.N == 0 {
		return nil
	}
	return []Figure{{Key: k, Quantity: Quantity{unit, "lower", true}, Side: Side{Value: Value{Median: m.Median, Low: m.Low, High: m.High}}}}
}

// once makes a figure of one value; 0 is no value.
func once(k Key, unit string, value float64) []Figure {
	if value == 0 {
		return nil
	}
	return []Figure{{Key: k, Quantity: Quantity{unit, "lower", true}, Side: Side{Value: Value{Median: value, Once: true}}}}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
