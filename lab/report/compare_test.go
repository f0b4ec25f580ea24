package report

import (
	"math"
	"testing"

	"github.com/beeline-cni/beeline/lab/stats"
)

func TestQuotient(t *testing.T) {
	v := func(f float64) *float64 { return &f }
	of := func(median float64, low, high *float64) stats.Interval {
		return stats.Interval{Median: median, Low: low, High: high, N: 1}
	}
	for name, c := range map[string]struct {
		change    stats.Interval
		low, high float64
		undecided bool
	}{
		"overlap":  {quotient(of(10, v(9), v(11)), of(11, v(10), v(12))), 10. / 11, 12. / 9, true},
		"apart":    {quotient(of(10, v(9.9), v(10.1)), of(12, v(11.9), v(12.1))), 11.9 / 10.1, 12.1 / 9.9, false},
		"below":    {quotient(of(10, v(9.9), v(10.1)), of(8, v(7.9), v(8.1))), 7.9 / 10.1, 8.1 / 9.9, false},
		"touching": {quotient(of(10, v(9), v(11)), of(12, v(11), v(13))), 1, 13. / 9, true},
	} {
		if c.change.Low == nil || math.Abs(*c.change.Low-c.low) > 1e-12 || math.Abs(*c.change.High-c.high) > 1e-12 {
			t.Errorf("%s: %+v, want %v–%v", name, c.change, c.low, c.high)
			continue
		}
		if c.change.Undecided() != c.undecided {
			t.Errorf("%s: undecided %t", name, !c.undecided)
		}
	}
	if c := quotient(of(10, nil, nil), of(12, v(11), v(13))); c.Low != nil || !c.Undecided() || c.Median != 1.2 {
		t.Errorf("without an interval: %+v", c)
	}
	if c := quotient(of(0, nil, nil), of(12, nil, nil)); c.N != 0 {
		t.Errorf("division by nothing: %+v", c)
	}
}
