package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/beeline-cni/beeline/lab/result"
)

// bucketsPerOctave makes buckets about 1.1 % wide: finer than any difference a report would print.
const bucketsPerOctave = 64

// HistogramOf sorts values, in microseconds, into buckets with bounds that are the same for every
// histogram, so that histograms of different samples can be merged. Values up to 1 ns share one bucket.
func HistogramOf(values []float64) *result.Histogram {
	counts := map[int]uint64{}
	for _, v := range values {
		counts[bucket(v)]++
	}
	h := &result.Histogram{}
	for _, b := range slices.Sorted(keys(counts)) {
		h.UpTo = append(h.UpTo, bound(b))
		h.Count = append(h.Count, counts[b])
	}
	return h
}

func keys(m map[int]uint64) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

const smallest = 0.001 // µs

func bucket(v float64) int {
	if v <= smallest {
		return 0
	}
	b := int(math.Ceil(bucketsPerOctave * math.Log2(v/smallest)))
	if bound(b) < v { // the bound was rounded down
		b++
	}
	return b
}

// bound is rounded to six significant digits, to keep the file readable.
func bound(b int) float64 {
	v := smallest * math.Exp2(float64(b)/bucketsPerOctave)
	scale := math.Pow(10, 5-math.Floor(math.Log10(v)))
	return math.Round(v*scale) / scale
}

// Merge adds histograms bucket by bucket; nil ones count as empty. Buckets are the union of all buckets.
func Merge(list ...*result.Histogram) (*result.Histogram, error) {
	counts := map[float64]uint64{}
	for _, h := range list {
		if h == nil {
			continue
		}
		if len(h.UpTo) != len(h.Count) {
			return nil, fmt.Errorf("merge histograms: %d bounds, %d counts", len(h.UpTo), len(h.Count))
		}
		for i, upTo := range h.UpTo {
			counts[upTo] += h.Count[i]
		}
	}
	type pair struct {
		upTo  float64
		count uint64
	}
	pairs := make([]pair, 0, len(counts))
	for upTo, count := range counts {
		pairs = append(pairs, pair{upTo, count})
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Compare(a.upTo, b.upTo) })
	merged := &result.Histogram{}
	for _, p := range pairs {
		merged.UpTo = append(merged.UpTo, p.upTo)
		merged.Count = append(merged.Count, p.count)
	}
	return merged, nil
}

// Total is the number of values in a histogram.
func Total(h *result.Histogram) uint64 {
	var n uint64
	if h != nil {
		for _, c := range h.Count {
			n += c
		}
	}
	return n
}

// Percentile is the upper bound of the bucket that holds the quantile q (0…1), in microseconds; NaN for an
// empty histogram.
func Percentile(h *result.Histogram, q float64) float64 {
	n := Total(h)
	if n == 0 {
		return math.NaN()
	}
	left := rank(n, q)
	for i, c := range h.Count {
		if c >= left {
			return h.UpTo[i]
		}
		left -= c
	}
	return h.UpTo[len(h.UpTo)-1]
}
