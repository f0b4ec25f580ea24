package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// The median alone keeps a promise or not; whether that is decided, the interval says.
func TestDecided(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	for name, c := range map[string]struct {
		promise         promise
		found           stats.Interval
		kept, decidedBy string
	}{
		"above":           {promise{bound: 0.98, median: true}, stats.Interval{Median: 0.99, Low: at(0.985), High: at(1)}, kept, decided},
		"at the bound":    {promise{bound: 0.98, median: true}, stats.Interval{Median: 0.99, Low: at(0.98), High: at(1)}, kept, decided},
		"kept by chance":  {promise{bound: 0.98, median: true}, stats.Interval{Median: 0.99, Low: at(0.979), High: at(1)}, kept, open},
		"broken by it":    {promise{bound: 0.98, median: true}, stats.Interval{Median: 0.97, Low: at(0.96), High: at(0.98)}, notKept, open},
		"below":           {promise{bound: 0.98, median: true}, stats.Interval{Median: 0.97, Low: at(0.96), High: at(0.979)}, notKept, decided},
		"at most, kept":   {promise{bound: 10, atMost: true, median: true}, stats.Interval{Median: 9, Low: at(8), High: at(10)}, kept, decided},
		"at most, open":   {promise{bound: 10, atMost: true, median: true}, stats.Interval{Median: 9, Low: at(8), High: at(11)}, kept, open},
		"few rounds":      {promise{bound: 0.98, median: true}, stats.Interval{Median: 0.99}, kept, fewRounds},
		"no median":       {promise{bound: 10, atMost: true}, stats.Interval{Median: 9}, kept, dash},
		"nothing at all":  {promise{bound: 0.98, median: true}, stats.Interval{}, notMeasured, dash},
		"few and too low": {promise{bound: 0.98, median: true}, stats.Interval{Median: 0.97}, notKept, fewRounds},
	} {
		c.promise.got = func(*view) (stats.Interval, bool) {
			if name != "nothing at all" {
				c.found.N = 7
			}
			return c.found, true
		}
		if r := c.promise.row(nil); r.Kept != c.kept || r.Decided != c.decidedBy {
			t.Errorf("%s: %+v, want %s, decided %s", name, r, c.kept, c.decidedBy)
		}
	}
}

// What is not decided is said everywhere, and what is not kept is called that all the same.
func TestUndecidedPromisesAreShown(t *testing.T) {
	run := ofPolicies()
	for i := range run.Samples {
		if s := &run.Samples[i]; s.Network == withPolicy && s.Workload == "tcp_crr" { // a ratio between 0.8 and 1.04 around 0.92
			s.Values[result.Rate] = 10000 * 0.9 * (1 + 0.001*float64(s.Round)) * (0.8 + 0.04*float64(s.Round))
		}
	}
	run.Summary = stats.Summarize(run)
	var table, markdown, page bytes.Buffer
	for _, err := range []error{Table(&table, run), Markdown(&markdown, run), HTML(&page, run)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Lines are broken where the terminal ends.
	unwrapped := strings.Join(strings.Fields(table.String()), " ")
	for _, c := range [][2]string{
		{unwrapped, "not kept Allowing policies on both pods, TCP_CRR: wanted ≥ 0.93, got 0.920 (0.800–1.040); decided: no"},
		{unwrapped, "Not kept: Allowing policies on both pods, TCP_CRR: 0.920, wanted ≥ 0.93 (not decided: the 95 % interval is 0.800–1.040)"},
		{unwrapped, "are not decided: another run may find them not kept"},
		{markdown.String(), "| Allowing policies on both pods, TCP_CRR | ≥ 0.93 | 0.920 | 0.800–1.040 | not kept | no |"},
		{page.String(), `<td class="num">0.800–1.040</td><td class="wrong">not kept</td><td>no</td>`},
	} {
		if !strings.Contains(c[0], c[1]) {
			t.Errorf("lacks %q", c[1])
		}
	}
}
