package report

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// measured makes a run of 7 rounds in which the rate of each network is the given share of the node's: the same in every
// round, or alternating around it by wobble.
func measured(wobble float64, shares map[string]float64, order ...string) *result.Run {
	run := &result.Run{Schema: 1, Workloads: []result.Workload{
		{Name: "tcp_rr", Title: "TCP_RR", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"},
		{Name: "sockperf_tcp", Title: "ping-pong", Metric: result.RTT, Unit: "µs", Better: "lower", Work: "message"},
	}}
	for _, name := range order {
		if name != stats.Again { // in samples only, as in real runs
			run.Networks = append(run.Networks, result.Network{Name: name})
		}
	}
	for round := range 7 {
		run.Rounds = append(run.Rounds, result.Round{Index: round})
		for _, name := range order {
			share := shares[name]
			if name != stats.Baseline {
				share *= 1 + wobble*float64(round%3-1)
			}
			for metric, value := range map[string]float64{result.Rate: 70000 * share, result.RTT: 14 / share} {
				workload := map[string]string{result.Rate: "tcp_rr", result.RTT: "sockperf_tcp"}[metric]
				run.Samples = append(run.Samples, result.Sample{
					Round: round, Network: name, Workload: workload, Path: result.CrossNode, Placement: result.OneCore, Procs: 1,
					Seconds: 1, Values: map[string]float64{metric: value},
				})
			}
		}
	}
	run.Summary = stats.Summarize(run)
	return run
}

func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("missing %q in:\n%s", p, text)
		}
	}
}

func TestCautions(t *testing.T) {
	run := measured(0, map[string]float64{"node": 1, "node/again": 1.03, "beeline": 0.9}, "node", "node/again", "beeline")
	for i := range run.Rounds[:3] {
		run.Rounds[i].Discarded = "steal"
	}
	run.Samples[0].Error = "broken"
	run.CrossChecks = []result.CrossCheck{{Network: "node", Path: result.CrossNode, Expected: 70000, Measured: 35000}}
	run.Summary = stats.Summarize(run)
	want(t, strings.Join(newView(run).cautions(), "\n"),
		"Only 4 rounds counted", "3 of 7 rounds were discarded", "from itself by up to 3.0 %", "does not agree", "Samples failed")
	sound := measured(0, map[string]float64{"node": 1, "node/again": 1, "beeline": 0.9}, "node", "node/again", "beeline")
	if c := newView(sound).cautions(); len(c) != 0 {
		t.Errorf("a sound run has cautions: %q", c)
	}
}

// Medians that agree prove nothing if the node differs from itself in single rounds: every rendering has the interval.
func TestAAIntervalIsShown(t *testing.T) {
	run := measured(0.2, map[string]float64{"node": 1, "node/again": 1, "beeline": 0.9}, "node", "node/again", "beeline")
	shown(t, New(run), "node/again", "1.000~ (0.800–1.200)")
}

// A published ratio is compared with the same ratio of the run, whatever its baseline.
func TestPublishedRatiosHaveTheirBaseline(t *testing.T) {
	run := measured(0, map[string]float64{"node": 1, "node+netfilter": 0.8, "beeline": 0.9, "ptp": 0.7}, "node", "node+netfilter", "beeline", "ptp")
	if first := newView(run).studies().Tables[0]; len(first.Charts) == 0 || !strings.Contains(first.Context, "ours: node+netfilter") {
		t.Errorf("ratios to node+netfilter are compared nowhere: %+v", first)
	}
}
