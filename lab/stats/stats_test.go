package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
)

func TestMedianOf(t *testing.T) {
	// For n = 6 the interval is the whole range (96.9 %), for n = 9 order statistics 2 and 8 (96.1 %):
	// binomial tables.
	tests := map[string]struct {
		values    []float64
		median    float64
		low, high float64
		finite    bool
	}{
		"one value":        {[]float64{3}, 3, 0, 0, false},
		"five are too few": {[]float64{5, 1, 4, 2, 3}, 3, 0, 0, false},
		"six":              {[]float64{6, 1, 5, 2, 4, 3}, 3.5, 1, 6, true},
		"nine":             {[]float64{9, 8, 7, 6, 5, 4, 3, 2, 1}, 5, 2, 8, true},
		"an outlier stays": {[]float64{1, 1, 1, 1, 1, 1000}, 1, 1, 1000, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			first := test.values[0]
			got := MedianOf(test.values)
			if got.Median != test.median || got.N != len(test.values) {
				t.Errorf("median %v of %d, want %v of %d", got.Median, got.N, test.median, len(test.values))
			}
			if test.values[0] != first {
				t.Error("the caller's values were sorted in place")
			}
			if (got.Low != nil) != test.finite || (got.High != nil) != test.finite {
				t.Fatalf("interval %v…%v, want finite: %v", got.Low, got.High, test.finite)
			}
			if test.finite && (*got.Low != test.low || *got.High != test.high) {
				t.Errorf("interval %v…%v, want %v…%v", *got.Low, *got.High, test.low, test.high)
			}
		})
	}
	if got := MedianOf(nil); got != (Interval{}) {
		t.Errorf("median of nothing: %+v", got)
	}
}

// The interval must hold the true median in at least 95 % of all samples, whatever the distribution.
func TestIntervalCoversTheMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	const trials = 4000
	covered := 0
	for range trials {
		values := make([]float64, 8)
		for i := range values {
			values[i] = random.ExpFloat64()
		}
		if i := MedianOf(values); *i.Low <= math.Ln2 && *i.High >= math.Ln2 {
			covered++
		}
	}
	if share := float64(covered) / trials; share < 0.95 || share > 0.999 {
		t.Errorf("covers the median in %.3f of the samples, want at least 0.95 and not always", share)
	}
}

func TestUndecided(t *testing.T) {
	bound := func(v float64) *float64 { return &v }
	tests := []struct {
		low, high *float64
		want      bool
	}{
		{nil, nil, true},
		{bound(0.9), bound(1.1), true},
		{bound(0.9), bound(1), true},
		{bound(0.8), bound(0.99), false},
		{bound(1.01), bound(1.2), false},
	}
	for _, test := range tests {
		if got := (Interval{Low: test.low, High: test.high}).Undecided(); got != test.want {
			t.Errorf("%v…%v undecided: %v, want %v", test.low, test.high, got, test.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	values := make([]float64, 200)
	for i := range values {
		values[len(values)-1-i] = float64(i + 1)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 100, 0.99: 198, 0.995: 199, 1: 200} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
}

// merge adds histograms as those of the samples of one series.
func merge(list ...*result.Histogram) *result.Histogram {
	s := series{}
	for i, h := range list {
		s[i] = &result.Sample{Latency: h}
	}
	return s.merge()
}

func TestHistogramKeepsPercentiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	values := make([]float64, 50000)
	for i := range values {
		values[i] = 8 * math.Exp(random.NormFloat64()/2)
	}
	whole := HistogramOf(values)
	if Total(whole) != uint64(len(values)) {
		t.Fatalf("total %d", Total(whole))
	}
	var parts []*result.Histogram
	for i := 0; i < len(values); i += 10000 {
		parts = append(parts, HistogramOf(values[i:i+10000]))
	}
	merged := merge(append(parts, nil)...)
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		exact := Quantile(values, q)
		for name, h := range map[string]*result.Histogram{"whole": whole, "merged": merged} {
			if got := Percentile(h, q); got < exact || got > exact*1.012 {
				t.Errorf("%s: percentile %v is %v, exact %v", name, q, got, exact)
			}
		}
	}
}

// Averaging percentiles would give 55 here; the merged percentile is that of all values.
func TestMergedPercentileIsNotTheAverage(t *testing.T) {
	a := &result.Histogram{UpTo: []float64{10}, Count: []uint64{990}}
	b := &result.Histogram{UpTo: []float64{10, 100}, Count: []uint64{0, 10}}
	m := merge(a, b)
	if got := Percentile(m, 0.99); got != 10 {
		t.Errorf("P99 is %v, want 10", got)
	}
	if got := Percentile(m, 0.999); got != 100 {
		t.Errorf("P99.9 is %v, want 100", got)
	}
	if got := Percentile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
	if got := Total(merge(&result.Histogram{UpTo: []float64{1}})); got != 0 {
		t.Errorf("bounds without counts have %d values", got)
	}
}

func TestHistogramOfExtremes(t *testing.T) {
	h := HistogramOf([]float64{-1, 0, 0.0005, 1e9})
	if len(h.UpTo) != 2 || h.Count[0] != 3 || h.UpTo[1] < 1e9 {
		t.Errorf("%+v", h)
	}
}
