package stats

import (
	"math"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
)

// testRun has seven rounds in which the machine gets slower; "half" always does half of the baseline's work.
func testRun() *result.Run {
	run := &result.Run{
		Networks: []result.Network{{Name: Baseline}, {Name: "half"}},
		Workloads: []result.Workload{
			{Name: "tcp_rr", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"},
			{Name: "sockperf_tcp", Metric: result.RTT, Unit: "µs", Better: "lower"},
		},
	}
	for i := range 7 {
		run.Rounds = append(run.Rounds, result.Round{Index: i})
		base := 100000 - 5000*float64(i)
		add := func(name string, path result.Path, rate float64) {
			run.Samples = append(run.Samples, result.Sample{
				Round: i, Network: name, Workload: "tcp_rr", Path: path, Placement: result.OneCore, Procs: 1, Seconds: 0.5,
				Values: map[string]float64{result.Rate: rate, result.RTT: 1e6 / rate, result.RTTP99: 3e6 / rate},
				CPU:    result.CPU{User: 0.1, System: 0.2, Softirq: 0.2, Steal: 0.3, Idle: 0.4},
			})
		}
		add("half", result.CrossNode, base/2)
		add(Baseline, result.CrossNode, base)
		add(Again, result.CrossNode, base*(1+0.001*float64(i-3)))
		add("half", result.SameNode, base*0.9)
		add(Baseline, result.SameNode, base*1.8)
		run.Samples = append(run.Samples, result.Sample{
			Round: i, Network: Baseline, Workload: "sockperf_tcp", Path: result.CrossNode, Placement: result.OneCore, Procs: 1,
			Values:  map[string]float64{result.RTT: 1e6 / base},
			Latency: &result.Histogram{UpTo: []float64{10, 50}, Count: []uint64{990, uint64(10 * i)}},
		})
	}
	return run
}

func find(t *testing.T, list []result.Summary, network, workload string, path result.Path, metric string) result.Summary {
	t.Helper()
	var found []result.Summary
	for _, s := range list {
		if s.Network == network && s.Workload == workload && s.Path == path && s.Metric == metric {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d summaries of %s %s %s %s, want 1", len(found), network, workload, path, metric)
	}
	return found[0]
}

func near(a *float64, b float64) bool { return a != nil && math.Abs(*a-b) < 1e-9 }

func TestSummarizePairsWithinRounds(t *testing.T) {
	list := Summarize(testRun())
	s := find(t, list, "half", "tcp_rr", result.CrossNode, result.Rate)
	if !near(s.Ratio, 0.5) || !near(s.RatioLow, 0.5) || !near(s.RatioHigh, 0.5) {
		t.Errorf("ratio %v (%v…%v): drift of the machine must cancel out", s.Ratio, s.RatioLow, s.RatioHigh)
	}
	if s.Median != 42500 || s.N != 7 || s.Low == nil || *s.Low != 35000 || *s.High != 50000 {
		t.Errorf("median %v (%v…%v) of %d", s.Median, s.Low, s.High, s.N)
	}
	if a := find(t, list, Again, "tcp_rr", result.CrossNode, result.Rate); !near(a.Ratio, 1) || *a.RatioLow >= 1 || *a.RatioHigh <= 1 {
		t.Errorf("A/A ratio %v (%v…%v)", *a.Ratio, *a.RatioLow, *a.RatioHigh)
	}
	if own := find(t, list, Baseline, "tcp_rr", result.CrossNode, result.Rate); !near(own.Ratio, 1) {
		t.Errorf("the baseline's own ratio is %v", own.Ratio)
	}
}

func TestSummarizeSameNode(t *testing.T) {
	list := Summarize(testRun())
	if s := find(t, list, "half", "tcp_rr", result.SameNode, result.Rate); !near(s.Ratio, 0.5) {
		t.Errorf("ratio to the node's loopback %v, want 0.5", *s.Ratio)
	}
	if s := find(t, list, "half", "tcp_rr", result.SameNode, result.Rate+result.VersusWire); !near(s.Ratio, 0.9) {
		t.Errorf("ratio to the wire %v, want 0.9", *s.Ratio)
	}
}

func TestSummarizeCPU(t *testing.T) {
	s := find(t, Summarize(testRun()), "half", "tcp_rr", result.CrossNode, result.CPUTransaction)
	// 0.5 s of user, system and softirq in a window of 0.5 s at 42,500 per second; no steal, no idle.
	if math.Abs(s.Median-1e6/42500) > 1e-9 || !near(s.Ratio, 2) {
		t.Errorf("%v µs, ratio %v", s.Median, *s.Ratio)
	}
}

func TestSummarizeLatency(t *testing.T) {
	list := Summarize(testRun())
	s := find(t, list, Baseline, "sockperf_tcp", result.CrossNode, result.RTTP99)
	// 210 of 7140 values are 50: the P99 of all of them is 50, while the P99 of the first round is 10.
	if s.Median != 50 || s.Low != nil {
		t.Errorf("merged P99 %v (%v)", s.Median, s.Low)
	}
	p := find(t, list, "half", "tcp_rr", result.CrossNode, result.RTTP99+"_per_round")
	if math.Abs(p.Median-3e6/42500) > 1e-9 || !near(p.Ratio, 2) {
		t.Errorf("per-round P99 %v", p.Median)
	}
	for _, s := range list {
		if s.Network == "half" && s.Metric == result.RTTP99 {
			t.Error("a percentile without a histogram passes for a merged one")
		}
	}
}

// A stream's receive buffer is shown, because it explains what the rate alone does not.
func TestSummarizeReceiveBuffer(t *testing.T) {
	run := &result.Run{Workloads: []result.Workload{{Name: "tcp_stream_16k", Metric: result.Throughput, Unit: "Gbit/s", Better: "higher", Work: "GB"}}}
	for i, size := range []float64{2e6, 20e6, 22e6} {
		run.Samples = append(run.Samples, result.Sample{
			Round: i, Network: Baseline, Workload: "tcp_stream_16k", Path: result.CrossNode, Placement: result.OneCore, Procs: 1,
			Values: map[string]float64{result.Throughput: 30, result.ReceiveBuffer: size},
		})
	}
	if s := find(t, Summarize(run), Baseline, "tcp_stream_16k", result.CrossNode, result.ReceiveBuffer); s.Median != 20e6 || s.N != 3 {
		t.Errorf("%+v", s)
	}
	for _, s := range Summarize(testRun()) {
		if s.Metric == result.ReceiveBuffer {
			t.Error("a request–response workload shows its buffer")
		}
	}
}

func TestSummarizeLeavesOutWhatDoesNotCount(t *testing.T) {
	run := testRun()
	run.Rounds[6].Discarded = "steal"
	for i := range run.Samples {
		if s := &run.Samples[i]; s.Network == "half" && s.Round == 0 {
			s.Error, s.Values = "broken", nil
		}
	}
	run.Samples = append(run.Samples, result.Sample{
		Round: -1, Network: "half", Workload: "tcp_rr", Path: result.CrossNode, Placement: result.OneCore, Procs: 1,
		Values: map[string]float64{result.Rate: 1},
	})
	s := find(t, Summarize(run), "half", "tcp_rr", result.CrossNode, result.Rate)
	if s.N != 5 || s.Low != nil || s.RatioLow != nil || !near(s.Ratio, 0.5) {
		t.Errorf("n %d, interval %v, ratio %v", s.N, s.Low, s.Ratio)
	}
}

func TestSummarizeWithoutBaseline(t *testing.T) {
	run := testRun()
	kept := run.Samples[:0]
	for _, s := range run.Samples {
		if s.Network != Baseline {
			kept = append(kept, s)
		}
	}
	run.Samples = kept
	if s := find(t, Summarize(run), "half", "tcp_rr", result.CrossNode, result.Rate); s.Ratio != nil {
		t.Errorf("ratio %v to nothing", *s.Ratio)
	}
}

func TestCrossCheck(t *testing.T) {
	run := testRun()
	agree := map[string]bool{}
	for _, c := range CrossCheck(run) {
		if c.Network == Baseline && c.Path == result.CrossNode {
			agree[c.Check] = c.Agree
		}
	}
	if len(agree) != 2 {
		t.Fatalf("%d checks of the baseline, want 2: %v", len(agree), agree)
	}
	for what, ok := range agree {
		if !ok {
			t.Errorf("%s: disagrees", what)
		}
	}
	for i := range run.Samples { // a tool that prints half round trips
		if s := &run.Samples[i]; s.Workload == "sockperf_tcp" {
			s.Values[result.RTT] /= 2
		}
	}
	found := false
	for _, c := range CrossCheck(run) {
		if c.Check == "TCP_RR ≈ 1e6 / sockperf's mean RTT in µs (one-core)" {
			found = true
			if c.Agree {
				t.Error("half a round trip agrees")
			}
		}
	}
	if !found {
		t.Error("no check against sockperf")
	}
}
