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

// publishedMark is a published ratio set beside a contender in a chart.
type publishedMark struct {
	System, Study, Ratio string
	Value                float64
	Shape                int
	Symbol               template.HTML
}

// publishedLegend explains the marks of one study in a chart.
type publishedLegend struct {
	Study string
	Marks []publishedMark
}

// groupMarks puts the marks of one study together.
func groupMarks(marks []publishedMark) []publishedLegend {
	var list []publishedLegend
	for _, m := range marks {
		i := slices.IndexFunc(list, func(l publishedLegend) bool { return l.Study == m.Study })
		if i < 0 {
			list = append(list, publishedLegend{Study: m.Study})
			i = len(list) - 1
		}
		list[i].Marks = append(list[i].Marks, m)
	}
	return list
}

// counterpart finds the figure of this run that a published one compares with: the first of its workloads
// that the run has, across nodes, with the fewest processes.
func (v *view) counterpart(f published.Figure) (figure, bool) {
	if !f.Comparable() {
		return figure{}, false
	}
	for _, name := range f.Workloads {
		for _, mine := range v.figures {
			if mine.workload == name && mine.path == result.CrossNode && mine.Better == f.Better {
				return mine, true
			}
		}
	}
	return figure{}, false
}

// publishedMarks lists, by contender, the published ratios to a bare node that belong into the chart of f.
// Ratios to anything else, a node with connection tracking too, would not mean the same on its scale: they
// have charts of their own.
func (v *view) publishedMarks(f figure) map[string][]publishedMark {
	marks := map[string][]publishedMark{}
	for _, s := range published.Studies() {
		for _, p := range s.Figures {
			mine, ok := v.counterpart(p)
			if !ok || mine.figureKey != f.figureKey || p.Against != baseline {
				continue
			}
			marks[p.Contender] = append(marks[p.Contender], publishedMark{
				System: p.System, Study: studyName(s), Ratio: ratio(&p.Ratio), Value: p.Ratio,
			})
		}
	}
	return marks
}

func studyName(s published.Study) string { return fmt.Sprintf("%s %d", s.Author, s.Year) }

// publishedSection compares published ratios with the same ratios of this run, and lists what is carried.
type publishedSection struct {
	Symbol   template.HTML
	Compared []comparedStudy
	Studies  []studyView
}

// comparedStudy is one study's ratios to one baseline beside the same ratios of this run.
type comparedStudy struct {
	Study, Baseline, Against string
	Chart                    template.HTML
	Rows                     []publishedRow
	chart                    chart.Ratio
}

type publishedRow struct {
	Test, System, Published, Grade string
	Mine, Ratio, Mark, Interval    string
}

type studyView struct {
	published.Study
	Tests []testView
}

type testView struct {
	Name, Unit string
	Figures    []publishedValue
}

type publishedValue struct {
	System, Value, Ratio string
	Grade                published.Grade
}

func publishedFigures(v *view) *publishedSection {
	s := &publishedSection{Symbol: chart.Symbol(0)}
	for _, study := range published.Studies() {
		for _, p := range study.Figures {
			if mine, ok := v.counterpart(p); ok {
				s.compare(study, p, mine)
			}
		}
		s.Studies = append(s.Studies, viewStudy(study))
	}
	for i := range s.Compared {
		s.Compared[i].Chart = s.Compared[i].chart.SVG()
	}
	return s
}

// compare adds one published ratio and its counterpart in the figure mine; without a round that has both
// contenders there is nothing to add.
func (s *publishedSection) compare(study published.Study, p published.Figure, mine figure) {
	e := mine.paired(p.Contender, p.Against)
	if e.N == 0 {
		return
	}
	row := publishedRow{
		Test: p.Test, System: p.System, Published: ratio(&p.Ratio), Grade: string(p.Grade),
		Mine: p.Contender + ", " + mine.Title, Ratio: ratio(&e.Median), Interval: interval(e.Low, e.High),
	}
	if e.Undecided() {
		row.Mark = "~"
	}
	to := s.comparedTo(study, p)
	to.Rows = append(to.Rows, row)
	to.chart.Rows = append(to.chart.Rows, chart.RatioRow{
		Label: shortTest(p.Test) + ": " + p.System, Ratio: &e.Median, Low: e.Low, High: e.High, Value: row.Ratio,
		Highlight: p.Contender == subject, Tip: row.Mine + ": " + row.Ratio,
		Published: []chart.Marker{{Ratio: p.Ratio, Tip: "published: " + row.Published}},
	})
}

// comparedTo finds or makes the comparison that a figure belongs to. Rates and times do not share a chart:
// better lies on different sides.
func (s *publishedSection) comparedTo(study published.Study, p published.Figure) *comparedStudy {
	name := studyName(study)
	i := slices.IndexFunc(s.Compared, func(c comparedStudy) bool {
		return c.Study == name && c.Baseline == p.Baseline && c.chart.Better == p.Better
	})
	if i < 0 {
		i = len(s.Compared)
		s.Compared = append(s.Compared, comparedStudy{Study: name, Baseline: p.Baseline, Against: p.Against, chart: chart.Ratio{
			Baseline: "baseline", Better: p.Better,
			Text: chart.Text{
				ID: fmt.Sprintf("published-%d", i), Title: "Ratios published by " + name + " beside those measured here",
				Desc: "Each row is one published ratio, hollow, and the same ratio of this run, filled with its interval. The table has the same figures.",
			},
		}})
	}
	return &s.Compared[i]
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

func viewStudy(study published.Study) studyView {
	view := studyView{Study: study}
	for _, f := range study.Figures {
		i := slices.IndexFunc(view.Tests, func(t testView) bool { return t.Name == f.Test })
		if i < 0 {
			view.Tests = append(view.Tests, testView{Name: f.Test, Unit: f.Unit})
			i = len(view.Tests) - 1
		}
		value := publishedValue{System: f.System, Value: quantity(f.Value, f.Unit), Ratio: dash, Grade: f.Grade}
		if f.Ratio > 0 {
			value.Ratio = ratio(&f.Ratio)
		}
		view.Tests[i].Figures = append(view.Tests[i].Figures, value)
	}
	return view
}
