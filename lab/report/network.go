package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/comparison"
	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// overviewColumns is the number of figures side by side.
const overviewColumns = 6

// overview has tables of ratios for each placement and path: networks down, figures across.
func (v *view) overview() Section {
	s := Section{ID: "overview", Title: "Overview: ratio to the node", Summary: true, Notes: []string{
		"Each number is a network's figure divided by the node's figure in the same round: the median over all rounds. ~ marks a ratio whose " +
			"95 % interval includes 1, or that has too few rounds for an interval: no difference is decided. ↓: lower is better.",
	}}
	var groups [][]figure
	for _, f := range v.figures {
		last := len(groups) - 1
		if last < 0 || groups[last][0].place() != f.place() || len(groups[last]) == overviewColumns {
			groups = append(groups, nil)
			last++
		}
		groups[last] = append(groups[last], f)
	}
	for _, figures := range groups {
		s.Tables = append(s.Tables, v.overviewTable(figures))
	}
	return s
}

// place is the path and the placement of the figure.
func (f figure) place() string { return listed(string(f.key.Path), string(f.key.Placement)) }

func (v *view) overviewTable(figures []figure) *Table {
	t := newTable(Everywhere, "Ratio to node", figures[0].place(), v.noun())
	t.Anchors = map[string]string{}
	for _, f := range figures {
		title := better(f.title(), f.work.Better)
		t.Columns = append(t.Columns, title)
		t.Anchors[title] = f.anchor()
	}
	for _, n := range v.networks() {
		var row []any
		for _, f := range figures {
			row = append(row, f.cell(n.Name))
		}
		if n.Unsupported != "" {
			t.add(n.Name).Note = n.Unsupported
			continue
		}
		t.addMeasured(n.Name, row...)
	}
	return t
}

// cell is a network's ratio in the figure.
func (f figure) cell(network string) Cell {
	r := f.row(network)
	if r.summary == nil {
		return Cell{Text: map[bool]string{true: failed, false: dash}[r.failed > 0]}
	}
	c := ratioCell(ratioOf(r.summary))
	if network == stats.Baseline {
		c = Cell{Text: "1", Ratio: stats.Interval{Median: 1, N: 1}}
	}
	if network == stats.Again {
		c.Text += " (" + interval(r.summary.RatioLow, r.summary.RatioHigh) + ")"
	}
	c.Figure = f.quantityOf(r.summary)
	c.Tip = network + ": " + c.Figure
	if r.summary.RatioLow != nil && r.summary.RatioHigh != nil {
		c.Tip += ", ratio " + interval(r.summary.RatioLow, r.summary.RatioHigh)
	}
	return c
}

// figureTables has one table per figure, with its charts.
func (v *view) figureTables() Section {
	s := Section{ID: "figures", Title: "Figures", Notes: []string{
		"Dots are medians of the per-round ratios to the node, lines their 95 % intervals. The median of the ratios is not the ratio of the medians.",
	}}
	for _, f := range v.figures {
		s.Tables = append(s.Tables, v.figureTable(f))
		if more := v.secondary(f); len(more.Rows) > 0 {
			s.Tables = append(s.Tables, more)
		}
	}
	return s
}

func (v *view) figureTable(f figure) *Table {
	t := newTable(Detail, f.work.Title, context(f.key), v.noun(), better("median", f.work.Better), "ratio", "95 % interval", "n")
	t.ID = f.anchor()
	wire := slices.ContainsFunc(f.rows, func(r networkRow) bool { return r.wire != nil })
	if wire {
		t.Columns = append(t.Columns, "× node cross-node")
	}
	for _, r := range f.rows {
		if r.unsupported != "" { // named in the overview
			continue
		}
		if r.summary == nil {
			t.add(r.network).Note = r.failure()
			continue
		}
		c := f.cell(r.network)
		median := Cell{Text: c.Figure}
		if s := r.summary; s.Low != nil && s.High != nil {
			unit := cmp.Or(s.Unit, f.work.Unit)
			median.Tip = "95 % interval " + quantity(*s.Low, unit) + " – " + quantity(*s.High, unit)
		}
		span := interval(r.summary.RatioLow, r.summary.RatioHigh)
		if r.network == stats.Baseline {
			span = "baseline"
		}
		c.Figure = ""
		n := fmt.Sprint(r.summary.N)
		if r.failed > 0 {
			n += fmt.Sprintf(" (%d of %d failed)", r.failed, r.tried)
		}
		row := []any{median, c, span, n}
		if wire {
			row = append(row, ratio(r.wire))
		}
		t.add(r.network, row...)
	}
	t.ratioChart(1, chart.Rows{Baseline: stats.Baseline, Text: chart.Text{
		ID: "c-" + f.anchor(), Title: f.work.Title + ": ratio to node", Desc: context(f.key) + ", " + f.unitNote() + ".",
	}}, f.work.Better)
	if samples := f.sampleChart(); len(samples.Rows) > 0 {
		t.Charts = append(t.Charts, Chart{SVG: samples.SVG(), Fold: "Every sample",
			Caption: "One dot is one sample, the first round on top. The bar is the median. Crosses are discarded samples."})
	}
	return t
}

// sampleChart draws the raw samples. It has no rows if there are none.
func (f figure) sampleChart() chart.Rows {
	c := chart.Rows{Unit: f.work.Unit, Label: tickIn(""), Text: chart.Text{
		ID: "s-" + f.anchor(), Title: f.work.Title + ": every sample",
		Desc: context(f.key) + ". Each mark is one sample, the first round on top. Bars are medians of the samples that count. Crosses are discarded samples.",
	}}
	drawn := 0
	for _, r := range f.rows {
		if r.unsupported != "" {
			continue
		}
		row := chart.Row{Label: r.network, Highlight: isBeeline(r.network)}
		if len(r.points) == 0 {
			row.Value, _, _ = strings.Cut(r.failure(), " ")
		}
		for _, p := range r.points {
			drawn++
			mark := chart.Mark{At: p.value, Shape: chart.Sample, Tip: fmt.Sprintf("round %d: %s", p.Round, quantity(p.value, f.work.Unit))}
			if p.discarded {
				mark.Shape = chart.Discarded
			}
			row.Marks = append(row.Marks, mark)
		}
		if r.summary != nil {
			row.Marks = append(row.Marks, chart.Mark{At: r.summary.Median, Shape: chart.Median})
			row.Value = f.quantityOf(r.summary)
		}
		c.Rows = append(c.Rows, row)
	}
	if drawn == 0 {
		c.Rows = nil
	}
	return c
}

// secondary has the other metrics of a figure that have no table of their own: mean round trip, loss, retransmits.
func (v *view) secondary(f figure) *Table {
	elsewhere := []string{f.work.Metric, result.RTTP50, result.RTTP90, result.RTTP99, result.RTTP999}
	var metrics []string
	for i := range v.run.Summary {
		s := &v.run.Summary[i]
		if f.key == summaryKey(s) && !slices.Contains(elsewhere, s.Metric) && !slices.Contains(metrics, s.Metric) &&
			!strings.HasPrefix(s.Metric, "cpu_") && !strings.HasSuffix(s.Metric, result.VersusWire) {
			metrics = append(metrics, s.Metric)
		}
	}
	t := newTable(PageOnly, f.work.Title+": also measured", context(f.key), v.noun())
	t.Fold = "Also measured"
	for _, m := range metrics {
		name, rounds := strings.CutSuffix(m, stats.PerRound)
		name = strings.ReplaceAll(name, "_", " ")
		if rounds {
			name += ", median of rounds"
		}
		t.Columns = append(t.Columns, name)
	}
	for _, r := range f.rows {
		var row []any
		for _, m := range metrics {
			c := none
			if s := v.summary(f.key, r.network, m); s != nil {
				c.Text = quantity(s.Median, s.Unit)
			}
			row = append(row, c)
		}
		t.addMeasured(r.network, row...)
	}
	return t
}

// builds compares the networks of two builds of Beeline, figure by figure: by ratios within a round, and what costs have no
// rounds by their values.
func (v *view) builds() Section {
	t := newTable(Detail, "Builds: ratio of this build to the other", "", "Builds", "figure", "ratio", "95 % interval")
	for _, c := range comparison.Builds(v.run) {
		title, change := c.Name, c.Value
		if c.Metric != "" {
			title, change = v.workload(c.Name).Title+" · "+context(c.Samples()), c.Ratio
		}
		if c.Headline && change != nil {
			t.add(c.Network+" ÷ "+c.Build, append([]any{better(title, c.Better)}, changeCells(change)...)...)
		}
	}
	return Section{ID: "builds", Title: "Builds", Summary: true, Tables: []*Table{t}}
}
