package report

import (
	"fmt"
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
			t.printf("  %s %10s %10s %10s %10s   %s", pad("", 15), "P50", "P90", "P99", "P99.9", r.title+" · "+r.key.heading())
		}
		t.printf("  %s %s %s %s %s", pad(r.contender, 15), left(micros(r.at[0]), 10), left(micros(r.at[1]), 10), left(micros(r.at[2]), 10), left(micros(r.at[3]), 10))
	}
}

func (t *terminal) again(v *view) {
	a := v.againCheck()
	t.printf("")
	if a.n == 0 {
		t.printf("A/A check: not in this run.")
		return
	}
	t.printf("A/A check (node against node, %s): %s", plural(a.n, "figure"), a.sentence())
}

func (t *terminal) crossChecks(run *result.Run) {
	if len(run.CrossChecks) == 0 {
		return
	}
	t.printf("")
	t.printf("Cross-check: two tools that must agree")
	for _, c := range run.CrossChecks {
		verdict := "agree"
		if !c.Agree {
			verdict = "DO NOT AGREE"
		}
		t.printf("  %s %s %s: expected %s, measured %s (%s), %s", pad(c.Contender, 15), pad(string(c.Path), 10), c.What,
			quantity(c.Expected, "/s"), quantity(c.Measured, "/s"), deviation(c), verdict)
	}
}

func deviation(c result.CrossCheck) string {
	if c.Expected == 0 {
		return dash
	}
	return fmt.Sprintf("%+.1f %%", (c.Measured/c.Expected-1)*100)
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
		t.printf("  %s %s %s %s  (%s)", pad(p.contender, 15), pad(string(p.path), 10), pad(p.workload, 16), left(nanos(p.perPacket), 8), strings.Join(parts, ", "))
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
		t.printf("  %s %s %s %s %s %s %s %s", pad(f.contender, 15), left(f.addP50, 10), left(f.addP99, 10), left(f.delP50, 10), left(f.rss, 10), left(f.maps, 10), left(f.idle, 8), left(f.pods, 6))
	}
}

func (t *terminal) rounds(v *view) {
	t.printf("")
	n, of := len(v.discarded), len(v.run.Rounds)
	t.printf("Rounds: %d, discarded: %d.%s", of, n, gateNote(v.run))
	for _, r := range v.run.Rounds {
		if r.Discarded != "" {
			t.printf("  round %d: %s (steal %s, foreign load %s)", r.Index, r.Discarded, percent(r.Steal), percent(r.Foreign))
		}
	}
}

func gateNote(run *result.Run) string {
	if run.Settings.Gate == "" {
		return ""
	}
	return " Rule, fixed before the run: " + run.Settings.Gate
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
