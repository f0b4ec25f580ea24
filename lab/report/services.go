package report

import (
	"fmt"
	"html/template"
	"slices"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// serviceSection is what the Service bench says beside its figures.
type serviceSection struct {
	// Direct is the ratio of the ClusterIP to the pod's own address, by contender and workload.
	Direct  *grid
	Curves  []curveView
	Changes []changeRow
	Syncs   []syncRow
}

// grid is a table of words with a head.
type grid struct {
	Title   string
	Columns []string
	Rows    []gridRow
}

type gridRow struct {
	Name      string
	Cells     []string
	Highlight bool
}

// curveView is one workload among more and more Services.
type curveView struct {
	Chart template.HTML
	grid
}

type changeRow struct{ Name, What, Among, N, P50, P99, Max, Note string }

type syncRow struct{ Name, What, Seconds, RSS, Maps, Note string }

func (v *view) services() *serviceSection {
	if v.run.Services == nil {
		return nil
	}
	s := &serviceSection{Direct: v.direct()}
	for _, w := range v.run.Workloads {
		if w.Target == "" && len(levels(v.run, w.Name)) > 1 {
			s.Curves = append(s.Curves, v.curve(w))
		}
	}
	for _, c := range v.run.Services.Convergence {
		s.Changes = append(s.Changes, newChangeRow(c))
	}
	for _, one := range v.run.Services.Syncs {
		s.Syncs = append(s.Syncs, newSyncRow(one))
	}
	return s
}

// servingContenders are those that know Services and came up.
func (v *view) servingContenders() []string {
	var names []string
	for _, c := range v.contenders() {
		if c.Name != baseline && c.Name != again && c.Unsupported == "" {
			names = append(names, c.Name)
		}
	}
	return names
}

// direct compares, in each contender, the ClusterIP of the only Service with the pod's own address.
func (v *view) direct() *grid {
	g := &grid{Title: "ClusterIP against pod IP"}
	var of []string
	for _, w := range v.run.Workloads {
		if w.Target == "" && through(v.run, w.Name, 1) != "" {
			of = append(of, w.Name)
			title := w.Title
			if w.Better == "lower" {
				title += " ↓"
			}
			g.Columns = append(g.Columns, title)
		}
	}
	for _, name := range v.servingContenders() {
		row := gridRow{Name: name, Highlight: name == atSocket}
		for _, w := range of {
			cell := dash
			if i, ok := v.within(through(v.run, w, 1), name, w, name, v.placement()); ok {
				cell = ratio(&i.Median)
				if i.Low != nil && i.High != nil {
					cell += " (" + interval(i.Low, i.High) + ")"
				}
			}
			row.Cells = append(row.Cells, cell)
		}
		g.Rows = append(g.Rows, row)
	}
	if len(of) == 0 {
		return nil
	}
	return g
}

// placement is the run's, of which the Service bench has one.
func (v *view) placement() result.Placement {
	if len(v.run.Settings.Placement) > 0 {
		return result.Placement(v.run.Settings.Placement[0])
	}
	return result.OneCore
}

// curve shows one workload with each number of Services, the median of its rounds, and that against the smallest number.
func (v *view) curve(w result.Workload) curveView {
	numbers := levels(v.run, w.Name)
	c := curveView{grid: grid{Title: w.Title + " to a ClusterIP, by the number of Services"}}
	for _, n := range numbers {
		c.Columns = append(c.Columns, group(fmt.Sprint(n)))
	}
	c.Columns = append(c.Columns, fmt.Sprintf("%s against %s", group(fmt.Sprint(numbers[len(numbers)-1])), group(fmt.Sprint(numbers[0]))))
	drawing := chart.Curve{
		Text: chart.Text{
			ID: "services-" + w.Name, Title: c.Title,
			Desc: "One line for each network; points are medians over the rounds, with their 95 % intervals. The scale of the number of Services is logarithmic. The table has the same figures.",
		},
		X: "Services, logarithmic scale", Y: w.Unit, LabelX: tickIn(""), LabelY: tickIn(w.Unit),
	}
	for _, name := range v.servingContenders() {
		row := gridRow{Name: name, Highlight: name == atSocket}
		line := chart.CurveLine{Label: name, Highlight: name == atSocket}
		apart := false
		for _, n := range numbers {
			i, ok := v.median(through(v.run, w.Name, n), name, v.placement())
			if !ok {
				row.Cells = append(row.Cells, dash)
				apart = true
				continue
			}
			text := quantity(i.Median, w.Unit)
			row.Cells = append(row.Cells, text)
			line.Points = append(line.Points, chart.CurvePoint{
				X: float64(n), Y: i.Median, Low: i.Low, High: i.High, Apart: apart, Tip: fmt.Sprintf("%s, %s: %s", name, plural(n, "Service"), text),
			})
			apart = false
		}
		cell := dash
		if i, ok := v.within(through(v.run, w.Name, numbers[len(numbers)-1]), name, through(v.run, w.Name, numbers[0]), name, v.placement()); ok {
			cell = ratio(&i.Median)
		}
		row.Cells = append(row.Cells, cell)
		c.Rows = append(c.Rows, row)
		drawing.Lines = append(drawing.Lines, line)
	}
	c.Chart = drawing.SVG()
	return c
}

func newChangeRow(c result.ServiceConvergence) changeRow {
	what := map[result.ServiceChange]string{
		result.ServiceCreated: "Service with 10 backends created", result.BackendAdded: "backend added",
	}[c.Change]
	if what == "" {
		what = string(c.Change)
	}
	r := changeRow{
		Name: c.Network, What: what, Among: fmt.Sprintf("%s × %d", group(fmt.Sprint(c.Services)), c.Backends),
		N: fmt.Sprint(len(c.Milliseconds)), P50: dash, P99: dash, Max: dash, Note: c.Error,
	}
	if n := len(c.Milliseconds); n > 0 {
		r.P50, r.Max = quantity(stats.Quantile(c.Milliseconds, 0.5), "ms"), quantity(slices.Max(c.Milliseconds), "ms")
		r.P99 = quantity(stats.Quantile(c.Milliseconds, 0.99), "ms")
	}
	return r
}

func newSyncRow(s result.Sync) syncRow {
	r := syncRow{Name: s.Network, What: fmt.Sprintf("%s × %d", group(fmt.Sprint(s.Services)), s.Backends), Seconds: dash, RSS: dash, Maps: dash, Note: s.Error}
	if len(s.Seconds) > 0 {
		r.Seconds = quantity(stats.MedianOf(s.Seconds).Median, "s")
		if len(s.Seconds) > 1 {
			r.Seconds += fmt.Sprintf(" (up to %s)", quantity(slices.Max(s.Seconds), "s"))
		}
	}
	if s.RSSBytes > 0 {
		r.RSS = quantity(float64(s.RSSBytes)/1e6, "MB")
	}
	if s.MapBytes > 0 {
		r.Maps = quantity(float64(s.MapBytes)/1e6, "MB")
	}
	return r
}
