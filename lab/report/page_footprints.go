package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/stats"
)

// footprintSection is what networks cost without traffic.
type footprintSection struct {
	Chart template.HTML
	Rows  []footprintView
}

type footprintView struct {
	Name, AddP50, AddP99, DelP50, RSS, Maps, Idle, Pods, Adds string
	Highlight                                                 bool
}

func footprints(v *view) *footprintSection {
	rows := footprintRows(v.run)
	if len(rows) == 0 {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b footprintRow) int { return cmp.Compare(addMedian(a), addMedian(b)) })
	s := &footprintSection{}
	c := chart.Strip{Log: true, Label: tickIn("ms"), Text: chart.Text{
		ID: "add", Title: "CNI ADD, from the start of the plugin to its result",
		Desc: "Each dot is one pod; the two bars of a row are P50 and P99. Logarithmic scale. The table has the same figures.",
	}}
	for _, r := range rows {
		adds := r.source.AddMilliseconds
		count := dash
		if len(adds) > 0 {
			count = group(fmt.Sprint(len(adds)))
		}
		s.Rows = append(s.Rows, footprintView{r.contender, r.addP50, r.addP99, r.delP50, r.rss, r.maps, r.idle, r.pods, count, r.contender == subject})
		if len(adds) == 0 {
			continue
		}
		row := chart.StripRow{Label: r.contender, Value: r.addP50, Highlight: r.contender == subject, Ticks: []float64{stats.Quantile(adds, 0.50), stats.Quantile(adds, 0.99)}}
		for i, ms := range adds {
			row.Points = append(row.Points, chart.StripPoint{Value: ms, Tip: fmt.Sprintf("pod %d: %s", i+1, quantity(ms, "ms"))})
		}
		c.Rows = append(c.Rows, row)
	}
	if len(c.Rows) > 0 {
		s.Chart = c.SVG()
	}
	return s
}

func addMedian(r footprintRow) float64 {
	if len(r.source.AddMilliseconds) == 0 {
		return 1e300
	}
	return stats.Quantile(r.source.AddMilliseconds, 0.5)
}
