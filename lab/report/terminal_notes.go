package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

func (t *terminal) latency(v *view) {
	rows := v.percentiles()
	if len(rows) == 0 {
		return
	}
	t.printf("")
	t.printf("Round trips, percentiles of the merged histograms of all rounds")
	var current figureKey
	for _, r := range rows {
		if r.key != current {
			current = r.key
			t.printf("  %s %10s %10s %10s %10s   %s", pad("", t.names), "P50", "P90", "P99", "P99.9", r.title+" · "+r.key.heading())
		}
		t.printf("  %s %s %s %s %s", pad(r.contender, t.names), left(micros(r.at[0]), 10), left(micros(r.at[1]), 10), left(micros(r.at[2]), 10), left(micros(r.at[3]), 10))
	}
}

func (t *terminal) again(v *view) {
	a := v.againCheck()
	t.printf("")
	if a.n == 0 {
		t.printf("A/A check: not in this run.")
		return
	}
	t.wrapped("", fmt.Sprintf("A/A check (node against node, %s): %s", plural(a.n, "figure"), a.sentence()))
}

// crossChecks sums up each kind of check in a line and lists what does not agree.
func (t *terminal) crossChecks(run *result.Run) {
	var kinds []string
	checks := map[string][]result.CrossCheck{}
	for _, c := range run.CrossChecks {
		if checks[c.Check] == nil {
			kinds = append(kinds, c.Check)
		}
		checks[c.Check] = append(checks[c.Check], c)
	}
	if len(kinds) > 0 {
		t.printf("")
		t.printf("Cross-check: figures that must agree")
	}
	for _, kind := range kinds {
		agree, largest := 0, 0.0
		for _, c := range checks[kind] {
			if c.Agree {
				agree++
			}
			if c.Expected != 0 {
				largest = max(largest, math.Abs(c.Measured/c.Expected-1))
			}
		}
		t.printf("  %s: %d of %d agree, largest deviation %s", kind, agree, len(checks[kind]), percent(largest))
		for _, c := range checks[kind] {
			if !c.Agree {
				t.printf("    DOES NOT AGREE: %s %s, expected %s, measured %s (%s)", c.Network, c.Path,
					quantity(c.Expected, "/s"), quantity(c.Measured, "/s"), deviation(c))
			}
		}
	}
}

func deviation(c result.CrossCheck) string {
	if c.Expected == 0 {
		return dash
	}
	text := fmt.Sprintf("%+.1f %%", (c.Measured/c.Expected-1)*100)
	if text == "-0.0 %" || text == "+0.0 %" {
		return "0.0 %"
	}
	return text
}

func (t *terminal) programs(run *result.Run) {
	totals := programTotals(run)
	if len(totals) == 0 {
		return
	}
	t.printf("")
	t.printf("BPF run time per one-way packet, all programs of the path together")
	for _, p := range totals {
		var parts []string
		for _, one := range p.programs {
			parts = append(parts, fmt.Sprintf("%s %s", one.name, nanos(one.perPacket)))
		}
		t.printf("  %s %s %s %s  (%s)", pad(p.contender, t.names), pad(string(p.path), 10), pad(p.workload, 16), left(nanos(p.perPacket), 8), strings.Join(parts, ", "))
	}
}

func (t *terminal) footprints(run *result.Run) {
	rows := footprintRows(run)
	if len(rows) == 0 {
		return
	}
	t.printf("")
	t.printf("Footprint %8s %10s %10s %10s %10s %10s %8s %6s", "", "ADD p50", "ADD p99", "DEL p50", "agent RSS", "BPF maps", "idle CPU", "pods")
	for _, f := range rows {
		t.printf("  %s %s %s %s %s %s %s %s", pad(f.contender, t.names), left(f.addP50, 10), left(f.addP99, 10), left(f.delP50, 10), left(f.rss, 10), left(f.maps, 10), left(f.idle, 8), left(f.pods, 6))
	}
	if few := slices.ContainsFunc(rows, func(f footprintRow) bool { n := len(f.source.AddMilliseconds); return n > 0 && n < 100 }); few {
		t.printf("  The p99 of fewer than 100 pods is the slowest of them.")
	}
}

func (t *terminal) rounds(v *view) {
	t.printf("")
	t.printf("Rounds: %d, discarded: %d%s.", len(v.run.Rounds), len(v.discarded), v.discardedTurns())
	if v.run.Settings.Gate != "" {
		t.wrapped("  ", "Rule, fixed before the run: "+v.run.Settings.Gate+".")
	}
	for _, r := range v.run.Rounds {
		if r.Discarded != "" {
			t.printf("  round %d: %s (steal %s, foreign load %s)", r.Index, r.Discarded, percent(r.Steal), percent(r.Foreign))
		}
	}
}

func (t *terminal) failures(v *view) {
	list := v.failures()
	if len(list) == 0 {
		return
	}
	t.printf("")
	t.printf("Failed samples")
	for _, f := range list {
		t.printf("  %s", clip(fmt.Sprintf("%s, %s · %s (rounds %s): %s", f.Contender, f.Workload, f.Heading, f.Rounds, f.Error), 3*terminalWidth))
	}
}
