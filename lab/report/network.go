package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/report/published"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// overviewColumns is the number of figures side by side.
const overviewColumns = 8

// overview has one table of ratios per placement and path: networks down, figures across.
func (v *view) overview() Section {
	s := Section{ID: "overview", Title: "Overview: ratio to the node", Summary: true, Notes: []string{
		"Each number is a network's figure divided by the node's figure in the same round: the median over all rounds. ~ marks a ratio whose " +
			"95 % interval includes 1, or that has too few rounds for an interval: no difference is decided. ↓: lower is better.",
	}}
	for _, figures := range v.groups() {
		for part := range slices.Chunk(figures, overviewColumns) {
			s.Tables = append(s.Tables, v.overviewTable(part))
		}
	}
	return s
}

func (v *view) overviewTable(figures []figure) *Table {
	key := figures[0].key
	t := &Table{Title: fmt.Sprintf("Ratio to node · %s · %s", key.Path, key.Placement), Columns: columns(v.noun())}
	for _, f := range figures {
		short := strings.ReplaceAll(f.key.Workload, "_", " ")
		if f.key.Procs > 1 {
			short += fmt.Sprintf(" ×%d", f.key.Procs)
		}
		t.Columns = append(t.Columns, Column{Title: f.title(), Short: short, Better: f.work.Better, Anchor: f.anchor()})
	}
	for _, n := range v.run.Networks {
		if n.Name == stats.Again {
			continue
		}
		var row []Cell
		measured := false
		for _, f := range figures {
			c := f.cell(n.Name)
			measured = measured || !c.Missing
			row = append(row, c)
		}
		switch {
		case measured:
			t.add(n.Name, row...)
		case n.Unsupported != "":
			t.add(n.Name).Note = n.Unsupported
		}
	}
	return t
}

// cell is a network's ratio in the figure.
func (f figure) cell(network string) Cell {
	for _, r := range f.rows {
		switch {
		case r.network != network:
			continue
		case r.summary == nil && r.failed > 0:
			return Cell{Text: failed}
		case r.summary == nil:
			return Cell{Text: dash, Missing: true}
		}
		c := ratioCell(ratioOf(r.summary))
		if network == stats.Baseline {
			c = Cell{Text: "1", Ratio: stats.Interval{Median: 1, N: 1}}
		}
		c.Figure = f.quantityOf(r.summary)
		c.Tip = network + ": " + c.Figure
		if c.Interval != "" {
			c.Tip += ", ratio " + c.Interval
		}
		c.Interval = ""
		return c
	}
	return Cell{Text: dash, Missing: true}
}

// figureTables has one table per figure, with its charts.
func (v *view) figureTables() Section {
	s := Section{ID: "figures", Title: "Figures", Notes: []string{
		"Dots are medians of the per-round ratios to the node, lines their 95 % intervals. The median of the ratios is not the ratio of the medians. " +
			"Hollow marks are published ratios to a bare node, from other machines: compare them with the dots of the same row only.",
	}}
	for _, f := range v.figures {
		s.Tables = append(s.Tables, v.figureTable(f))
	}
	return s
}

func (v *view) figureTable(f figure) *Table {
	t := &Table{ID: f.anchor(), Title: f.work.Title, Context: context(f.key), In: OnText | OnHTML}
	t.Columns = append(columns(v.noun()), Column{Title: "median", Better: f.work.Better}, Column{Title: "ratio"}, Column{Title: "95 % interval"}, Column{Bar: true})
	wire := slices.ContainsFunc(f.rows, func(r networkRow) bool { return r.wire != nil })
	if wire {
		t.Columns = append(t.Columns, Column{Title: "× node cross-node", Short: "× cross-node"})
	}
	t.Columns = append(t.Columns, Column{Title: "n"})
	var legend strings.Builder
	shape := 0
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
		span := text(interval(r.summary.RatioLow, r.summary.RatioHigh))
		if r.network == stats.Baseline {
			span.Text = "baseline"
		}
		bar := Cell{Ratio: c.Ratio}
		c.Figure = ""
		for _, p := range v.publishedBeside(f, r.network) {
			fmt.Fprintf(&legend, `<span class="key">%s %s</span> `, chart.Symbol(shape), template.HTMLEscapeString(p.Tip))
			p.Shape = shape
			c.Published = append(c.Published, p)
			shape++
		}
		row := []Cell{median, c, span, bar}
		if wire {
			row = append(row, text(ratio(r.wire)))
		}
		n := fmt.Sprint(r.summary.N)
		if r.failed > 0 {
			n += fmt.Sprintf(" (%d of %d failed)", r.failed, r.tried)
		}
		t.add(r.network, append(row, text(n))...)
	}
	t.ratioChart(1, chart.Ratio{Baseline: stats.Baseline, Better: f.work.Better, Text: chart.Text{
		ID: "c-" + f.anchor(), Title: f.work.Title + ": ratio to node", Desc: context(f.key) + ", " + f.unitNote() + ".",
	}})
	if shape > 0 && len(t.Charts) > 0 {
		t.Charts[0].Caption = template.HTML("Published, to a bare node: " + legend.String())
	}
	if svg := stripChart(f); svg != "" {
		t.Charts = append(t.Charts, Chart{SVG: svg, Fold: "Every sample",
			Caption: "One dot is one sample, the first round on top. The bar is the median. Crosses are discarded samples."})
	}
	if more := v.secondary(f); more != nil {
		t.More = append(t.More, more)
	}
	return t
}

// failed begins the note of a network whose samples failed.
const failed = "failed"

// failure is the reason why a row has no figure.
func (r networkRow) failure() string {
	if len(r.errors) == 0 {
		return "no figure"
	}
	return fmt.Sprintf(failed+" %d of %d: %s", r.failed, r.tried, strings.Join(r.errors, "; "))
}

// unitNote is the figure's unit and which way is better.
func (f figure) unitNote() string {
	unit := f.work.Unit
	if unit == "/s" {
		unit = "per second"
	}
	return strings.TrimPrefix(unit+", "+cmp.Or(f.work.Better, "higher")+" is better", ", ")
}

// anchor is the ID of the figure's table.
func (f figure) anchor() string {
	return slug(fmt.Sprintf("f-%s-%s-%s-%d", f.key.Workload, f.key.Path, f.key.Placement, f.key.Procs))
}

func slug(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
}

// publishedBeside has the published ratios to a bare node that compare with a network in the figure. Ratios to any other
// baseline mean something else and have charts of their own.
func (v *view) publishedBeside(f figure, network string) []chart.Marker {
	var list []chart.Marker
	for _, s := range published.Studies() {
		for _, p := range s.Figures {
			if mine, ok := v.counterpart(p); ok && mine.key == f.key && p.Against == stats.Baseline && p.Network == network {
				list = append(list, chart.Marker{Ratio: p.Ratio, Tip: studyName(s) + ", " + p.System + ": " + ratio(&p.Ratio)})
			}
		}
	}
	return list
}

// stripChart draws the raw samples.
func stripChart(f figure) template.HTML {
	c := chart.Strip{Text: chart.Text{
		ID: "s-" + f.anchor(), Title: f.work.Title + ": every sample",
		Desc: context(f.key) + ". Each mark is one sample, the first round on top. Bars are medians of the samples that count. Crosses are discarded samples.",
	}, Unit: f.work.Unit, Label: tickIn("")}
	n := 0
	for _, r := range f.rows {
		if r.unsupported != "" {
			continue
		}
		row := chart.StripRow{Label: r.network, Highlight: isBeeline(r.network)}
		if len(r.points) == 0 {
			row.Value = r.absence()
		}
		for _, p := range r.points {
			n++
			tip := fmt.Sprintf("round %d: %s", p.round, quantity(p.value, f.work.Unit))
			if p.discarded {
				tip += ", discarded"
			}
			row.Points = append(row.Points, chart.StripPoint{Value: p.value, Discarded: p.discarded, Tip: tip})
		}
		if r.summary != nil {
			row.Ticks, row.Value = []float64{r.summary.Median}, f.quantityOf(r.summary)
		}
		c.Rows = append(c.Rows, row)
	}
	if n == 0 {
		return ""
	}
	return c.SVG()
}

// secondary has the other metrics of a figure that have no table of their own: mean round trip, loss, retransmits.
func (v *view) secondary(f figure) *Table {
	elsewhere := []string{f.work.Metric, result.RTTP50, result.RTTP90, result.RTTP99, result.RTTP999}
	var metrics []string
	for i := range v.run.Summary {
		s := &v.run.Summary[i]
		if f.key == summaryKey(s) && s.Network != stats.Again && !slices.Contains(elsewhere, s.Metric) && !slices.Contains(metrics, s.Metric) &&
			!strings.HasPrefix(s.Metric, "cpu_") && !strings.HasSuffix(s.Metric, result.VersusWire) {
			metrics = append(metrics, s.Metric)
		}
	}
	if len(metrics) == 0 {
		return nil
	}
	t := &Table{Fold: "Also measured", Columns: columns(v.noun())}
	for _, m := range metrics {
		t.Columns = append(t.Columns, Column{Title: metricTitle(m)})
	}
	for _, r := range f.rows {
		var row []Cell
		measured := false
		for _, m := range metrics {
			c := none
			if s := v.summary(f.key, r.network, m); s != nil {
				c, measured = text(quantity(s.Median, s.Unit)), true
				if m == result.Retransmits {
					c = text(tickIn("")(s.Median))
				}
			}
			row = append(row, c)
		}
		if measured {
			t.add(r.network, row...)
		}
	}
	return t
}

func metricTitle(name string) string {
	name, rounds := strings.CutSuffix(name, stats.PerRound)
	shown := map[string]string{
		result.RTT: "mean round trip", result.RTTP50: "P50", result.RTTP90: "P90", result.RTTP99: "P99", result.RTTP999: "P99.9",
		result.Retransmits: "retransmitted segments",
	}[name]
	shown = cmp.Or(shown, strings.ReplaceAll(name, "_", " "))
	if rounds {
		shown += ", median of rounds"
	}
	return shown
}

// builds compares the networks of two builds of Beeline, figure by figure.
func (v *view) builds() Section {
	t := &Table{Title: "Builds: ratio of this build to the other within a round", In: OnText | OnHTML,
		Columns: []Column{texts("Builds"), texts("Figure"), {Title: "ratio"}, {Title: "95 % interval"}}}
	for _, n := range v.run.Networks {
		this := n.Facts[result.OtherBuildOf]
		for _, f := range v.figures {
			if i := paired(f.points(this), f.points(n.Name)); this != "" && i.N > 0 {
				name := text(f.work.Title + " · " + context(f.key))
				if f.work.Better == "lower" {
					name.Text += " ↓"
				}
				t.add(this+" ÷ "+n.Name, append([]Cell{name}, split(ratioCell(i))...)...)
			}
		}
	}
	return Section{ID: "builds", Title: "Builds", Summary: true, Tables: []*Table{t}}
}
