package report

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// The median alone keeps a target or not; whether that is decided, the interval says.
func TestDecided(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	for name, c := range map[string]struct {
		target target
		found  stats.Interval
		result string
	}{
		"above":           {target{bound: 0.98}, stats.Interval{Median: 0.99, Low: at(0.985), High: at(1)}, met},
		"at the bound":    {target{bound: 0.98}, stats.Interval{Median: 0.99, Low: at(0.98), High: at(1)}, met},
		"met by chance":   {target{bound: 0.98}, stats.Interval{Median: 0.99, Low: at(0.979), High: at(1)}, met + undecided},
		"missed by it":    {target{bound: 0.98}, stats.Interval{Median: 0.97, Low: at(0.96), High: at(0.98)}, missed + undecided},
		"below":           {target{bound: 0.98}, stats.Interval{Median: 0.97, Low: at(0.96), High: at(0.979)}, missed},
		"at most, met":    {target{bound: 10, atMost: true}, stats.Interval{Median: 9, Low: at(8), High: at(10)}, met},
		"at most, open":   {target{bound: 10, atMost: true}, stats.Interval{Median: 9, Low: at(8), High: at(11)}, met + undecided},
		"few rounds":      {target{bound: 0.98}, stats.Interval{Median: 0.99}, met + undecided},
		"no median":       {target{bound: 10, atMost: true, detail: "n 3"}, stats.Interval{Median: 9}, met},
		"nothing at all":  {target{bound: 0.98}, stats.Interval{}, notMeasured},
		"few and too low": {target{bound: 0.98}, stats.Interval{Median: 0.97}, missed + undecided},
	} {
		if name != "nothing at all" {
			c.found.N = 7
		}
		c.target.measured = c.found
		if got := c.target.result(); got != c.result {
			t.Errorf("%s: %s, want %s", name, got, c.result)
		}
	}
}

// Every rendering shows that a target is undecided, and that it is missed nevertheless.
func TestUndecidedTargetsAreShown(t *testing.T) {
	run := policyRun()
	for i := range run.Samples {
		if s := &run.Samples[i]; s.Network == withPolicy && s.Workload == "tcp_crr" { // a ratio between 0.8 and 1.04 around 0.92
			s.Values[result.Rate] = 10000 * 0.9 * (1 + 0.001*float64(s.Round)) * (0.8 + 0.04*float64(s.Round))
		}
	}
	run.Summary = stats.Summarize(run)
	all := shown(t, New(run), "0.800–1.040", "missed, undecided", "met, undecided")
	for name, want := range map[string]string{
		"markdown": "| Allowing policies on both pods, TCP_CRR | ≥ 0.93 | 0.920 | 0.800–1.040 | **missed, undecided** |",
		"page":     `<td>0.800–1.040</td><td class="wrong">missed, undecided</td>`,
	} {
		if !strings.Contains(unpadded(all[name]), want) {
			t.Errorf("%s lacks %q", name, want)
		}
	}
}
