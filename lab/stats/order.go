// Package stats derives figures from samples: medians with intervals that assume nothing about the distribution, ratios
// within a round, percentiles of merged histograms. It is pure: no clock, no files.
package stats

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Confidence is the level of every interval.
const Confidence = 0.95

// Interval is a median with the bounds of its 95 % confidence interval. The bounds are nil for fewer than six values: the
// range of five values covers the median with only 93.75 %.
type Interval struct {
	Median    float64
	Low, High *float64
	// N is the number of values; 0 means that there is no median.
	N int
}

// MedianOf returns the median and its interval from order statistics. It removes no outliers. Without values it returns
// the zero Interval.
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

// Undecided reports whether an interval of ratios includes 1, or is missing. Reports mark such a ratio with "~".
func (i Interval) Undecided() bool {
	return i.Low == nil || i.High == nil || (*i.Low <= 1 && *i.High >= 1)
}

// Quantile is the smallest value that at least the share q (0…1) of the values does not exceed. It is NaN without values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[rank(uint64(len(sorted)), q)-1]
}

// rank is the position, from 1, of the quantile q among n sorted values.
func rank(n uint64, q float64) uint64 {
	// The small term corrects rounding: 0.99 × 100 = 99.00000000000001 must not become rank 100.
	r := uint64(math.Ceil(q*float64(n) - 1e-9))
	return min(max(r, 1), n)
}
