package report

import (
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// buildPair is a network of the build that made the run, and the same one of another build.
type buildPair struct{ this, other string }

// buildPairs are those of a run.
func buildPairs(run *result.Run) []buildPair {
	var pairs []buildPair
	for _, c := range run.Networks {
		if this := c.Facts[result.OtherBuildOf]; this != "" {
			pairs = append(pairs, buildPair{this, c.Name})
		}
	}
	return pairs
}

// buildRow compares two builds in one figure: the median of the ratios this ÷ other within a round.
type buildRow struct {
	buildPair
	figure figure
	ratio  stats.Interval
}

func (v *view) buildRows() []buildRow {
	var rows []buildRow
	for _, p := range buildPairs(v.run) {
		for _, f := range v.figures {
			if r := f.paired(p.this, p.other); r.N > 0 {
				rows = append(rows, buildRow{p, f, r})
			}
		}
	}
	return rows
}

// builds compares the networks of two builds with each other, figure by figure.
func (t *terminal) builds(v *view) {
	rows := v.buildRows()
	if len(rows) == 0 {
		return
	}
	t.printf("")
	t.printf("Builds: ratio = this build ÷ the other one within a round, median over rounds, 95 %% interval")
	before := buildPair{}
	for _, r := range rows {
		if r.buildPair != before {
			t.printf("  %s ÷ %s", r.this, r.other)
			before = r.buildPair
		}
		t.printf("    %s %8s    %s", pad(r.figure.Title+" · "+r.figure.heading()+direction(r.figure), 56), ratio(&r.ratio.Median), undecidedMark(r.ratio)+interval(r.ratio.Low, r.ratio.High))
	}
}

// undecidedMark is "~ " where no difference is decided.
func undecidedMark(i stats.Interval) string {
	if i.Undecided() {
		return "~ "
	}
	return "  "
}
