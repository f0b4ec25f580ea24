// Package stats turns samples into figures: medians with intervals that assume nothing about the
// distribution, ratios within a round, percentiles of merged histograms. It is pure: no clock, no files.
package stats

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Confidence is the level of every interval.
const Confidence = 0.95

// Interval is a median with the bounds of its 95 % confidence interval. The bounds are nil where there are
// too few values for one: fewer than six (with five, even the range of all values holds the median in 93.75 %).
type Interval struct {
	Median    float64
	Low, High *float64
	N         int
}

// MedianOf gives the median and its interval from order statistics. No value is left out as an outlier.
// It gives the zero Interval for no values.
func MedianOf(values []float64) Interval {
	if len(values) == 0 {
		return Interval{}
	}
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	s := benchmath.AssumeNothing.Summary(sample, Confidence)
	i := Interval{Median: s.Center, N: len(values)}
	if finite(s.Lo) && finite(s.Hi) {
		i.Low, i.High = &s.Lo, &s.Hi
	}
	return i
}

func finite(v float64) bool { return !math.IsInf(v, 0) && !math.IsNaN(v) }

// Undecided says that an interval of ratios does not exclude "no difference", or that there is no interval:
// the figure is printed as "~".
func (i Interval) Undecided() bool {
	return i.Low == nil || i.High == nil || (*i.Low <= 1 && *i.High >= 1)
}

// Quantile is the smallest value that at least the share q (0…1) of the values do not exceed; NaN for no values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[rank(uint64(len(sorted)), q)-1]
}

// rank is the position, counted from 1, of the quantile q among n sorted values.
func rank(n uint64, q float64) uint64 {
	// The small term keeps 0.99 × 100 = 99.00000000000001 from becoming rank 100.
	r := uint64(math.Ceil(q*float64(n) - 1e-9))
	return min(max(r, 1), n)
}
