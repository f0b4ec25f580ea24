package comparison

import (
	"fmt"
	"math"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

func bound(f float64) *float64 { return &f }

func TestQuotient(t *testing.T) {
	of := func(median float64, low, high *float64) Value { return Value{Median: median, Low: low, High: high} }
	for name, c := range map[string]struct {
		change    *Value
		low, high float64
		decided   bool
	}{
		"overlap":  {quotient(of(10, bound(9), bound(11)), of(11, bound(10), bound(12))), 10. / 11, 12. / 9, false},
		"apart":    {quotient(of(10, bound(9.9), bound(10.1)), of(12, bound(11.9), bound(12.1))), 11.9 / 10.1, 12.1 / 9.9, true},
		"below":    {quotient(of(10, bound(9.9), bound(10.1)), of(8, bound(7.9), bound(8.1))), 7.9 / 10.1, 8.1 / 9.9, true},
		"touching": {quotient(of(10, bound(9), bound(11)), of(12, bound(11), bound(13))), 1, 13. / 9, false},
	} {
		if c.change.Low == nil || math.Abs(*c.change.Low-c.low) > 1e-12 || math.Abs(*c.change.High-c.high) > 1e-12 {
			t.Errorf("%s: %+v, want %v–%v", name, c.change, c.low, c.high)
			continue
		}
		if c.change.Decided() != c.decided {
			t.Errorf("%s: decided %t", name, !c.decided)
		}
	}
	if c := quotient(of(10, nil, nil), of(12, bound(11), bound(13))); c.Low != nil || c.Decided() || c.Median != 1.2 {
		t.Errorf("without an interval: %+v", c)
	}
	if c := quotient(of(0, nil, nil), of(12, nil, nil)); c != nil {
		t.Errorf("division by nothing: %+v", c)
	}
}

// benched is a run of nine rounds. Its machine is faster in each round. The factors are the networks' rates.
func benched(factors map[string]float64) *result.Run {
	run := &result.Run{
		Workloads: []result.Workload{{Name: "tcp_rr", Metric: result.Rate, Unit: "/s", Better: "higher"}},
		Networks:  []result.Network{{Name: "node"}, {Name: "beeline"}, {Name: "old", Facts: map[string]string{result.OtherBuildOf: "beeline"}}},
	}
	for round := range 9 {
		run.Rounds = append(run.Rounds, result.Round{Index: round})
		for name, factor := range factors {
			run.Samples = append(run.Samples, result.Sample{
				Round: round, Network: name, Workload: "tcp_rr", Path: result.CrossNode, Placement: result.OneCore, Procs: 1, Seconds: 1,
				Values: map[string]float64{result.Rate: 1000 * float64(round+1) * factor},
			})
		}
	}
	for _, name := range []string{"beeline", "old"} {
		f := result.Footprint{Network: name, MapBytes: 1000}
		for i := range 20 {
			f.AddMilliseconds = append(f.AddMilliseconds, factors[name]*(10+float64(i)/100))
		}
		run.Footprints = append(run.Footprints, f)
	}
	run.Summary = stats.Summarize(run)
	return run
}

// A change of 1 % is found between ratios within rounds, though the machine changes by far more.
func TestBuilds(t *testing.T) {
	changes := Builds(benched(map[string]float64{"node": 1, "beeline": 0.99, "old": 1}))
	got := map[string]string{}
	for _, c := range changes {
		got[c.String()] = fmt.Sprint(c.Ratio, " ", c.Value)
	}
	for figure, want := range map[string]string{
		"beeline ÷ old: tcp_rr rate, cross-node, one-core": "0.990 (0.990–0.990) 0.990 (0.247–3.960)",
		"beeline ÷ old: map_memory":                        "<nil> 1.000",
	} {
		if got[figure] != want {
			t.Errorf("%s: %q, want %q: %v", figure, got[figure], want, got)
		}
	}
	if len(Builds(&result.Run{Networks: []result.Network{{Name: "node"}}})) > 0 {
		t.Error("a run of one build has changes")
	}
}

// The same figure of two runs is compared, by its value and by its ratio to the node; what one run lacks is not.
func TestOf(t *testing.T) {
	a, b := benched(map[string]float64{"node": 1, "beeline": 0.9, "old": 1}), benched(map[string]float64{"node": 2, "beeline": 1.62})
	b.Footprints = b.Footprints[:1]
	changes := Of(a, b)
	if len(changes) != 4 { // the node, beeline, its ADD and its maps
		t.Fatalf("%d changes: %v", len(changes), changes)
	}
	for _, c := range changes {
		switch {
		case c.Network == stats.Baseline && c.Ratio != nil:
			t.Errorf("%s has a ratio to itself", c)
		case c.Network == "beeline" && c.Name == "tcp_rr" && (math.Abs(c.Ratio.Median-0.9) > 1e-9 || !c.Ratio.Decided() || c.Value.Decided()):
			t.Errorf("%s: %v of ratios, %v of values", c, c.Ratio, c.Value)
		case c.Name == Add && (math.Abs(c.Value.Median-1.8) > 1e-9 || !c.Value.Decided() || c.Headline != true):
			t.Errorf("%s: %v", c, c.Value)
		}
	}
}
