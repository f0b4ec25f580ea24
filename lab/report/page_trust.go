package report

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
)

// trustSection is what tells a reader how far to believe the figures.
type trustSection struct {
	Again      string
	AgainChart template.HTML
	AgainRows  []figureRow
	Checks     []checkRow
	Rounds     []roundRow
	Discarded  int
	Gate       string
	Failures   []failure
}

type checkRow struct {
	Contender, Path, What, Expected, Measured, Deviation string
	Agree                                                bool
}

type roundRow struct {
	Index, Started, Seconds, Steal, Foreign, Order, Discarded string
}

func trust(v *view) trustSection {
	s := trustSection{Discarded: len(v.discarded), Gate: v.run.Settings.Gate, Failures: v.failures()}
	a := v.againCheck()
	if a.n > 0 {
		s.Again = a.sentence()
		s.AgainChart, s.AgainRows = againChart(v, a)
	}
	for _, c := range v.run.CrossChecks {
		s.Checks = append(s.Checks, checkRow{c.Network, string(c.Path), c.Check, quantity(c.Expected, "/s"), quantity(c.Measured, "/s"), deviation(c), c.Agree})
	}
	for _, r := range v.run.Rounds {
		row := roundRow{fmt.Sprint(r.Index), "", significant(r.Seconds), percent(r.Steal), percent(r.Foreign), strings.Join(r.Order, ", "), r.Discarded}
		if !r.Started.IsZero() {
			row.Started = r.Started.UTC().Format("15:04:05")
		}
		for _, t := range r.Turns {
			if t.Discarded != "" && r.Discarded == "" {
				row.Discarded += fmt.Sprintf("%s: %s. ", t.Network, t.Discarded)
			}
		}
		s.Rounds = append(s.Rounds, row)
	}
	return s
}

func againChart(v *view, a againResult) (template.HTML, []figureRow) {
	c := chart.Ratio{Baseline: "no difference", Text: chart.Text{
		ID: "again", Title: "A/A check: node against node",
		Desc: "Each row is one figure measured twice on the same network. A sound measurement shows 1 within the interval. The table has the same figures.",
	}}
	var rows []figureRow
	for _, f := range a.figures {
		s := f.again
		label := f.Title
		if f.path != v.figures[0].path {
			label += ", " + string(f.path)
		}
		if f.procs > 1 {
			label += fmt.Sprintf(" ×%d", f.procs)
		}
		c.Rows = append(c.Rows, chart.RatioRow{Label: label, Ratio: s.Ratio, Low: s.RatioLow, High: s.RatioHigh, Value: strings.TrimSpace(ratio(s.Ratio) + " " + mark(s))})
		rows = append(rows, figureRow{Name: f.Title + " · " + f.heading(), Ratio: ratio(s.Ratio), Mark: mark(s), Interval: interval(s.RatioLow, s.RatioHigh)})
	}
	return c.SVG(), rows
}
