package stats

import (
	"maps"
	"math"
	"slices"

	"github.com/beeline-cni/beeline/lab/result"
)

// bucketsPerOctave makes buckets about 1.1 % wide, finer than the differences that a report shows.
const bucketsPerOctave = 64

// HistogramOf sorts values, in microseconds, into buckets. All histograms use the same bounds, so that they can be merged.
// Values up to 1 ns share one bucket.
func HistogramOf(values []float64) *result.Histogram {
	counts := map[int]uint64{}
	for _, v := range values {
		counts[bucket(v)]++
	}
	h := &result.Histogram{}
	for _, b := range slices.Sorted(maps.Keys(counts)) {
		h.UpTo = append(h.UpTo, bound(b))
		h.Count = append(h.Count, counts[b])
	}
	return h
}

// smallest is the upper bound of the first bucket, in microseconds.
const smallest = 0.001

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

// bound is the upper bound of bucket b, in microseconds, rounded to six digits to keep the result file readable.
func bound(b int) float64 {
	v := smallest * math.Exp2(float64(b)/bucketsPerOctave)
	scale := math.Pow(10, 5-math.Floor(math.Log10(v)))
	return math.Round(v*scale) / scale
}

// merge adds the histograms of samples bucket by bucket. A nil histogram is empty.
func (s series) merge() *result.Histogram {
	counts := map[float64]uint64{}
	for _, sample := range s {
		if h := sample.Latency; h != nil {
			for i := range min(len(h.UpTo), len(h.Count)) {
				counts[h.UpTo[i]] += h.Count[i]
			}
		}
	}
	merged := &result.Histogram{}
	for _, upTo := range slices.Sorted(maps.Keys(counts)) {
		merged.UpTo = append(merged.UpTo, upTo)
		merged.Count = append(merged.Count, counts[upTo])
	}
	return merged
}

// Total is the number of values in a histogram, 0 for nil.
func Total(h *result.Histogram) uint64 {
	var n uint64
	if h != nil {
		for _, c := range h.Count {
			n += c
		}
	}
	return n
}

// Percentile is the upper bound, in microseconds, of the bucket with the quantile q (0…1); NaN for an empty histogram.
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
