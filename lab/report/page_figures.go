package report

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
)

// matrix is the overview of one placement and path.
type matrix struct {
	Title   string
	Columns []matrixColumn
	Rows    []matrixRow
}

type matrixColumn struct{ Title, Note, Anchor string }

type matrixRow struct {
	Name, Note string
	Highlight  bool
	Cells      []matrixCell
}

type matrixCell struct {
	Text, Mark, Tip string
	Width           template.CSS // of the bar behind the number
	HasBar          bool
}

func matrices(v *view) []matrix {
	var list []matrix
	for _, figures := range groupFigures(v.figures) {
		b := v.overviewBlock(figures)
		m := matrix{Title: title(string(figures[0].path)) + ", " + string(figures[0].placement)}
		for _, f := range figures {
			note := f.Unit
			if f.Better == "lower" {
				note = strings.TrimPrefix(note+" · lower is better", " · ")
			}
			if f.procs > 1 {
				note = strings.TrimSuffix(plural(f.procs, "process")+" · "+note, " · ")
			}
			m.Columns = append(m.Columns, matrixColumn{f.Title, note, f.anchor()})
		}
		for _, r := range b.rows {
			row := matrixRow{Name: r.name, Note: r.note, Highlight: r.name == subject}
			for _, f := range figures {
				row.Cells = append(row.Cells, f.matrixCell(r.name))
			}
			m.Rows = append(m.Rows, row)
		}
		list = append(list, m)
	}
	return list
}

// title begins s with a capital letter, if it begins with an ASCII letter: units are not words.
func title(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// unitNote says what is measured and which way is better.
func (f figure) unitNote() string {
	better := "higher is better"
	if f.Better == "lower" {
		better = "lower is better"
	}
	unit := f.Unit
	if unit == "/s" {
		unit = "per second"
	}
	return strings.TrimPrefix(unit+", "+better, ", ")
}

// anchor is the figure's place on the page.
func (f figure) anchor() string {
	return slug(fmt.Sprintf("f-%s-%s-%s-%d", f.workload, f.path, f.placement, f.procs))
}

func slug(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
}

func (f figure) matrixCell(contender string) matrixCell {
	text, _ := f.cell(contender)
	c := matrixCell{Text: strings.TrimRight(text, " ~")}
	r := f.find(contender)
	if r == nil {
		return c
	}
	value := 1.0
	if contender != baseline {
		c.Mark = mark(r.summary)
		if r.summary.Ratio == nil {
			return c
		}
		value = *r.summary.Ratio
	}
	c.HasBar = true
	c.Width = template.CSS(fmt.Sprintf("width:%.1f%%", min(max(value, 0), 1.5)/1.5*100))
	c.Tip = fmt.Sprintf("%s: %s", contender, quantity(r.summary.Median, f.unitOf(r.summary)))
	if i := interval(r.summary.RatioLow, r.summary.RatioHigh); i != dash && contender != baseline {
		c.Tip += ", ratio " + i
	}
	return c
}

// figureGroup is a run of figures of the same path and placement.
type figureGroup struct {
	Title   string
	Figures []figureView
}

// figureView is one comparison: chart, table and raw samples.
type figureView struct {
	Anchor, Title, Heading, Note, Description string
	Chart, Strip                              template.HTML
	Rows                                      []figureRow
	Published                                 []publishedLegend
	Secondary                                 *secondaryTable
	HasWire                                   bool // some row has a ratio to the cross-node baseline
}

type figureRow struct {
	Name, Median, Range, Ratio, Mark, Interval, N string
	Wire                                          string // ratio to the node's cross-node figure
	Note                                          string // in place of the figures, or behind them
	Highlight, Baseline, Missing                  bool
}

func figureGroups(v *view) []figureGroup {
	var groups []figureGroup
	for _, figures := range groupFigures(v.figures) {
		g := figureGroup{Title: title(string(figures[0].path)) + ", " + string(figures[0].placement)}
		for _, f := range figures {
			g.Figures = append(g.Figures, v.figureView(f))
		}
		groups = append(groups, g)
	}
	return groups
}

func (v *view) figureView(f figure) figureView {
	w := figureView{
		Anchor: f.anchor(), Title: f.Title, Heading: f.heading(), Note: f.unitNote(), Description: f.Description,
	}
	marks := v.publishedMarks(f)
	for _, r := range f.rows {
		row := f.figureRow(r)
		row.Wire = dash
		if r.wire != nil {
			row.Wire, w.HasWire = ratio(r.wire), true
		}
		w.Rows = append(w.Rows, row)
	}
	var legend []publishedMark
	w.Chart, legend = ratioChart(f, marks)
	w.Published = groupMarks(legend)
	w.Strip = stripChart(f)
	w.Secondary = v.secondary(f)
	return w
}

func (f figure) figureRow(r row) figureRow {
	out := figureRow{Name: r.contender, Highlight: r.contender == subject, Baseline: r.contender == baseline}
	if r.summary == nil {
		out.Missing = true
		out.Note = r.unsupported
		if out.Note == "" {
			out.Note = r.failure()
		}
		return out
	}
	s := r.summary
	unit := f.unitOf(s)
	out.Median, out.N = quantity(s.Median, unit), fmt.Sprint(s.N)
	if s.Low != nil && s.High != nil {
		out.Range = quantity(*s.Low, unit) + " – " + quantity(*s.High, unit)
	} else {
		out.Range = dash
	}
	out.Ratio, out.Mark, out.Interval = ratio(s.Ratio), mark(s), interval(s.RatioLow, s.RatioHigh)
	if out.Baseline {
		out.Ratio, out.Mark, out.Interval = "1", "", "baseline"
	}
	if r.failed > 0 {
		out.Note = fmt.Sprintf("%d of %s failed", r.failed, plural(r.tried, "sample"))
	}
	return out
}

// ratioChart draws the figure's ratios, with published ones as hollow markers, and returns their legend.
func ratioChart(f figure, marks map[string][]publishedMark) (template.HTML, []publishedMark) {
	c := chart.Ratio{Baseline: baseline, Better: f.Better, Text: chart.Text{
		ID:    "c-" + f.anchor(),
		Title: f.Title + ": ratio to node",
		Desc:  fmt.Sprintf("%s, %s. Dots are medians of per-round ratios, lines their 95 %% intervals. The table beside the chart has the same figures.", f.heading(), f.unitNote()),
	}}
	var legend []publishedMark
	drawn := 0
	for _, r := range f.rows {
		if r.unsupported != "" { // these are named once, in the overview
			continue
		}
		row := chart.RatioRow{Label: r.contender, Highlight: r.contender == subject}
		if r.summary == nil || r.contender != baseline && r.summary.Ratio == nil {
			row.Value = r.absence()
			c.Rows = append(c.Rows, row)
			continue
		}
		drawn++
		if r.contender == baseline {
			one := 1.0
			row.Ratio, row.Value = &one, "1"
		} else {
			s := r.summary
			row.Ratio, row.Low, row.High = s.Ratio, s.RatioLow, s.RatioHigh
			row.Value = ratio(s.Ratio)
			if undecided(s) {
				row.Value += " ~"
			}
			row.Tip = fmt.Sprintf("%s: %s, interval %s", r.contender, ratio(s.Ratio), interval(s.RatioLow, s.RatioHigh))
		}
		for _, m := range marks[r.contender] {
			m.Shape = len(legend)
			m.Symbol = chart.Symbol(m.Shape)
			legend = append(legend, m)
			row.Published = append(row.Published, chart.Marker{Ratio: m.Value, Shape: m.Shape, Tip: m.System + ", published: " + m.Ratio})
		}
		c.Rows = append(c.Rows, row)
	}
	if drawn < 2 {
		return "", nil
	}
	return c.SVG(), legend
}

// absence says in a chart that a contender has nothing to draw; the table beside it says why.
func (r row) absence() string {
	if r.failed > 0 {
		return "failed"
	}
	return "no figure"
}

// stripChart draws the raw samples; without any there is no chart.
func stripChart(f figure) template.HTML {
	c := chart.Strip{Text: chart.Text{
		ID:    "s-" + f.anchor(),
		Title: f.Title + ": every sample",
		Desc:  fmt.Sprintf("%s. Each mark is one sample, the first round at the top of its row; bars are medians of the counted samples; crosses belong to discarded rounds.", f.heading()),
	}, Unit: f.Unit, Label: tickIn("")}
	n := 0
	for _, r := range f.rows {
		if r.unsupported != "" {
			continue
		}
		row := chart.StripRow{Label: r.contender, Highlight: r.contender == subject}
		if len(r.points) == 0 {
			row.Value = r.absence()
		}
		for _, p := range r.points {
			n++
			tip := fmt.Sprintf("round %d: %s", p.round, quantity(p.value, f.Unit))
			if p.discarded {
				tip += ", discarded"
			}
			row.Points = append(row.Points, chart.StripPoint{Value: p.value, Discarded: p.discarded, Tip: tip})
		}
		if r.summary != nil {
			row.Ticks = []float64{r.summary.Median}
			row.Value = quantity(r.summary.Median, f.unitOf(r.summary))
		}
		c.Rows = append(c.Rows, row)
	}
	if n == 0 {
		return ""
	}
	return c.SVG()
}
