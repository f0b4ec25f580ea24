package report

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Two builds are compared with each other by the ratios within a round, not by those to the baseline.
func TestBuilds(t *testing.T) {
	run := &result.Run{
		Workloads: []result.Workload{{Name: "tcp_rr", Title: "TCP_RR", Metric: result.Rate, Unit: "/s", Better: "higher"}},
		Networks: []result.Network{
			{Name: "node"}, {Name: "beeline"}, {Name: "old", Facts: map[string]string{result.OtherBuildOf: "beeline"}},
		},
	}
	for round := range 9 {
		base := 1000 * float64(round+1) // the machine is faster in each round
		run.Rounds = append(run.Rounds, result.Round{Index: round})
		for name, factor := range map[string]float64{"node": 1, "beeline": 0.9, "old": 0.75} {
			run.Samples = append(run.Samples, result.Sample{
				Round: round, Network: name, Workload: "tcp_rr", Path: result.CrossNode, Placement: result.OneCore, Procs: 1, Seconds: 1,
				Values: map[string]float64{result.Rate: base * factor},
			})
		}
	}
	run.Summary = stats.Summarize(run)
	text := unpadded(rendered(t, New(run).Text))
	for _, want := range []string{"beeline ÷ old", "1.200 | 1.200–1.200"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
