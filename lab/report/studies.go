package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/report/published"
	"github.com/beeline-cni/beeline/lab/result"
)

func studyName(s published.Study) string { return fmt.Sprintf("%s %d", s.Author, s.Year) }

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
	}, Legend: []LegendEntry{{chart.Symbol(0), "published"}, {measuredSymbol, "measured here, with its 95 % interval"}}}
	for i, study := range published.Studies() {
		s.Tables = append(s.Tables, v.compareStudy(i, study)...)
	}
	for _, study := range published.Studies() {
		s.Tables = append(s.Tables, studyTable(study))
	}
	return s
}

const measuredSymbol = template.HTML(`<svg class="symbol" viewBox="0 0 16 16" aria-hidden="true"><circle class="mark dot" cx="8" cy="8" r="4.5"/></svg>`)

// compareStudy has one table and chart per baseline and direction: rates and times do not share a chart.
func (v *view) compareStudy(number int, study published.Study) []*Table {
	type group struct{ baseline, better string }
	var tables []*Table
	var groups []group
	for _, p := range study.Figures {
		mine, ok := v.counterpart(p)
		i := paired(mine.points(p.Network), mine.points(p.Against))
		if !ok || i.N == 0 {
			continue
		}
		g := group{p.Baseline, p.Better}
		at := slices.Index(groups, g)
		if at < 0 {
			at = len(tables)
			groups = append(groups, g)
			tables = append(tables, &Table{Title: studyName(study), Context: "their baseline: " + p.Baseline + "; ours: " + p.Against, In: OnHTML, Fold: "Figures", Columns: []Column{
				texts("Published"), texts("grade"), {Title: "published"}, texts("measured here"), {Title: "ratio"}, {Title: "95 % interval"}}})
		}
		cell := ratioCell(i)
		cell.Published = []chart.Marker{{Ratio: p.Ratio, Tip: "published: " + ratio(&p.Ratio)}}
		row := append(cells(string(p.Grade), ratio(&p.Ratio), p.Network+", "+mine.work.Title), split(cell)...)
		tables[at].add(shortTest(p.Test)+": "+p.System, row...).Highlight = isBeeline(p.Network)
	}
	for i, t := range tables {
		t.ratioChart(3, chart.Ratio{Baseline: "baseline", Better: groups[i].better, Text: chart.Text{
			ID: fmt.Sprintf("published-%d-%d", number, i), Title: "Ratios published by " + studyName(study) + " beside those measured here",
			Desc: "Each row is one published ratio, hollow, and the same ratio of this run.",
		}})
	}
	return tables
}

// shortTest is the part of a test's name before its first comma or option.
func shortTest(name string) string {
	for i, r := range name {
		if r == ',' || r == '(' || r == '-' && i > 0 && name[i-1] == ' ' {
			return strings.TrimSpace(name[:i])
		}
	}
	return name
}

func studyTable(study published.Study) *Table {
	t := &Table{Title: study.Title, Context: studyName(study), In: OnHTML, Fold: "Figures", Notes: []string{study.Machine + ". " + study.Remark},
		Columns: []Column{texts("Test"), texts("system"), {Title: "value"}, {Title: "ratio"}, texts("grade")}}
	for _, f := range study.Figures {
		c := none
		if f.Ratio > 0 {
			c = text(ratio(&f.Ratio))
		}
		row := t.add(f.Test, text(f.System), text(quantity(f.Value, f.Unit)), c, text(string(f.Grade)))
		row.Highlight, row.Discarded = false, f.Grade == published.Unusable
	}
	return t
}
