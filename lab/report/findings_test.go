package report

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// measured makes a run of 7 rounds in which each contender's rate is the given share of the node's, the
// same in every round, or alternating around it by wobble.
func measured(wobble float64, shares map[string]float64, order ...string) *result.Run {
	run := &result.Run{Schema: 1, Workloads: []result.Workload{
		{Name: "tcp_rr", Title: "TCP_RR", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"},
		{Name: "sockperf_tcp", Title: "ping-pong", Metric: result.RTT, Unit: "µs", Better: "lower", Work: "message"},
	}}
	for _, name := range order {
		run.Networks = append(run.Networks, result.Network{Name: name})
	}
	for round := range 7 {
		run.Rounds = append(run.Rounds, result.Round{Index: round})
		for _, name := range order {
			share := shares[name]
			if name != baseline {
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

func texts(run *result.Run) string {
	var lines []string
	for _, f := range newView(run).findings() {
		lines = append(lines, f.Text())
	}
	return strings.Join(lines, "\n")
}

func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("missing %q in:\n%s", p, text)
		}
	}
}

// Times are turned round: a round trip of 14/0.9 µs is 0.9 of the node's speed, like a rate of 0.9.
func TestFindingsSayWhatTheFiguresSay(t *testing.T) {
	run := measured(0, map[string]float64{"node": 1, "node+netfilter": 0.8, "beeline": 0.9, "ptp": 0.75, "macvlan": 0.95},
		"node", "node+netfilter", "beeline", "ptp", "macvlan")
	want(t, texts(run),
		"beeline reaches 0.900 of the bare node's speed across nodes.",
		"Of 3 pod networks over 2 workloads, macvlan is the fastest in each.",
		"the nearest is ptp: 1.200 times its speed",
		"beeline is ahead in each of 2 workloads. 1.125 times its speed.")
}

func TestFindingsDoNotFlatter(t *testing.T) {
	run := measured(0, map[string]float64{"node": 1, "node+netfilter": 0.95, "beeline": 0.9, "ptp": 0.97},
		"node", "node+netfilter", "beeline", "ptp")
	text := texts(run)
	want(t, text, "ptp is the fastest in each.", "beeline is ahead in 0 of 2 workloads.", "; behind in 2.")
	if strings.Contains(text, "nearest") {
		t.Errorf("claims to beat somebody:\n%s", text)
	}
}

func TestFindingsLeaveOpenWhatIsUndecided(t *testing.T) {
	run := measured(0.05, map[string]float64{"node": 1, "node+netfilter": 0.9, "beeline": 0.9}, "node", "node+netfilter", "beeline")
	// Both wobble alike, so that their ratio would be exactly 1: undecided.
	want(t, texts(run), "ahead in 0 of 2 workloads", "no difference decided in 2")
}

// A fixed offered rate that everybody carries says nothing about who is faster.
func TestFindingsSkipWorkloadsThatOfferTooLittle(t *testing.T) {
	run := measured(0, map[string]float64{"node": 1, "beeline": 0.9}, "node", "beeline")
	for i := range run.Samples {
		if s := &run.Samples[i]; s.Workload == "tcp_rr" {
			s.Values[result.Rate] = 1000
		}
	}
	run.Summary = stats.Summarize(run)
	want(t, texts(run), "beeline reaches 0.900 of the bare node's speed across nodes. Measured with ping-pong.")
}

func TestFindingsWithoutBeelineSpeakOfTheBest(t *testing.T) {
	run := measured(0, map[string]float64{"node": 1, "ptp": 0.7, "macvlan": 0.95}, "node", "ptp", "macvlan")
	want(t, texts(run), "macvlan reaches 0.950")
	if text := texts(&result.Run{}); text != "" {
		t.Errorf("an empty run has findings: %s", text)
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
		"Only 4 rounds counted", "3 of 7 rounds were discarded", "differs by up to 3.0 %", "does not agree", "Samples failed")
	sound := measured(0, map[string]float64{"node": 1, "node/again": 1, "beeline": 0.9}, "node", "node/again", "beeline")
	if c := newView(sound).cautions(); len(c) != 0 {
		t.Errorf("a sound run has cautions: %q", c)
	}
}

// Medians that agree prove nothing while the node strays from itself in the single rounds.
func TestCautionsNameImpreciseFigures(t *testing.T) {
	run := measured(0.2, map[string]float64{"node": 1, "node/again": 1, "beeline": 0.9}, "node", "node/again", "beeline")
	v := newView(run)
	want(t, strings.Join(v.cautions(), "\n"), "wide for ", "TCP_RR cross-node (0.800–1.200)", "ping-pong cross-node", "read intervals there")
	want(t, v.againCheck().sentence(), "every interval includes 1. The widest is 0.8")
}

// A ratio to a node with connection tracking would lie wrong on a scale of ratios to the bare node.
func TestChartsMarkOnlyRatiosToTheBareNode(t *testing.T) {
	run := measured(0, map[string]float64{"node": 1, "node+netfilter": 0.8, "beeline": 0.9, "ptp": 0.7}, "node", "node+netfilter", "beeline", "ptp")
	v := newView(run)
	for _, f := range v.figures {
		if marks := v.publishedMarks(f); len(marks) != 0 {
			t.Errorf("%s is marked with %v", f.Title, marks)
		}
	}
	if section := publishedFigures(v); len(section.Compared) == 0 {
		t.Error("ratios to node+netfilter are compared nowhere")
	}
}
