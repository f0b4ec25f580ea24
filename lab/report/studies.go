package report

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/report/published"
	"github.com/beeline-cni/beeline/lab/result"
)

// counterpart is the figure of this run that compares with a published one: the first of its workloads that the run has,
// across nodes, with the fewest processes.
func (v *view) counterpart(f published.Figure) (figure, bool) {
	if f.Comparable() {
		for _, name := range f.Workloads {
			for _, mine := range v.figures {
				if mine.key.Workload == name && mine.key.Path == result.CrossNode && mine.work.Better == f.Better {
					return mine, true
				}
			}
		}
	}
	return figure{}, false
}

// studies has published ratios beside the same ratios of this run, and all published figures; only the page shows them.
func (v *view) studies() Section {
	s := Section{ID: "published", Title: "Beside published studies", Notes: []string{
		"Published figures come from other machines, kernels and years. Only ratios within one study compare with ours, and only to the same kind of baseline. " +
			"A difference can come from the machine as well as from the network.",
		"Grades: raw is from the authors' result files, text is stated by them, chart is read off a chart (about ±1 %), unusable contradicts the rest of its study.",
	}, Legend: []LegendEntry{{chart.Symbol(chart.Published), "published"}, {chart.Symbol(chart.Dot), "measured here, with its 95 % interval"}}}
	for i, study := range published.Studies() {
		s.Tables = append(s.Tables, v.compareStudy(i, study)...)
	}
	for _, study := range published.Studies() {
		s.Tables = append(s.Tables, studyTable(study))
	}
	return s
}

// compareStudy has one table and chart per baseline and direction: rates and times do not share a chart.
func (v *view) compareStudy(number int, study published.Study) []*Table {
	type group struct{ baseline, better string }
	var tables []*Table
	var groups []group
	for _, p := range study.Figures {
		mine, ok := v.counterpart(p)
		i := paired(mine.row(p.Network).points, mine.row(p.Against).points)
		if !ok || i.N == 0 {
			continue
		}
		g := group{p.Baseline, p.Better}
		at := slices.Index(groups, g)
		if at < 0 {
			at = len(tables)
			groups = append(groups, g)
			t := newTable(PageOnly, study.Name(), "their baseline: "+p.Baseline+"; ours: "+p.Against,
				"Published", "grade", "published", "measured here", "ratio", "95 % interval")
			t.Fold = "Figures"
			tables = append(tables, t)
		}
		cell := ratioCell(i)
		cell.Published = p.Ratio
		row := tables[at].add(shortTest(p.Test)+": "+p.System, p.Grade, ratio(&p.Ratio), p.Network+", "+mine.work.Title, cell, interval(i.Low, i.High))
		if isBeeline(p.Network) {
			row.Class = "hot"
		}
	}
	for i, t := range tables {
		t.ratioChart(3, chart.Rows{Baseline: "baseline", Text: chart.Text{
			ID: fmt.Sprintf("published-%d-%d", number, i), Title: "Ratios published by " + study.Name() + " beside those measured here",
			Desc: "Each row is one published ratio, hollow, and the same ratio of this run.",
		}}, groups[i].better)
	}
	return tables
}

// shortTest is the part of a test's name before its first comma or option.
func shortTest(name string) string {
	return regexp.MustCompile(`\s*(,|\(| -).*`).ReplaceAllString(name, "")
}

func studyTable(study published.Study) *Table {
	t := newTable(PageOnly, study.Title, study.Name(), "Test", "system", "value", "ratio", "grade")
	t.Fold, t.Notes = "Figures", []string{study.Machine + ". " + study.Remark}
	for _, f := range study.Figures {
		shown := dash
		if f.Ratio > 0 {
			shown = ratio(&f.Ratio)
		}
		row := t.add(f.Test, f.System, quantity(f.Value, f.Unit), shown, f.Grade)
		if f.Grade == published.Unusable {
			row.Class = "unusable"
		}
	}
	return t
}
