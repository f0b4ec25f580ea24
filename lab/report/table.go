package report

import (
	"html/template"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/stats"
)

// Document is a report: tables in sections, built once and rendered as text, Markdown or HTML.
type Document struct {
	// Title is the headline of the HTML page.
	Title string
	// Provenance is what was run, where and when, one line each.
	Provenance []string
	// Key explains the notation of the tables and how far the figures can be trusted, one line each.
	Key []string
	// Cautions are properties of the run that weaken its figures.
	Cautions []string
	Sections []Section

	method *method // nil for a comparison
}

// Section is a group of tables about one subject.
type Section struct {
	// ID is the anchor of the section on the HTML page.
	ID, Title string
	// Summary marks a section that summarizes others: it comes first on a page and last on a terminal.
	Summary bool
	// Notes are paragraphs above the tables, shown on the HTML page only.
	Notes  []string
	Legend []LegendEntry
	Tables []*Table
}

// LegendEntry explains a mark or shade of the charts of a section.
type LegendEntry struct {
	Symbol template.HTML
	Name   string
}

// Media is a set of renderings.
type Media uint8

// The renderings.
const (
	OnText Media = 1 << iota
	OnMarkdown
	OnHTML

	Everywhere = OnText | OnMarkdown | OnHTML
)

// Table is a table with the charts of its figures.
type Table struct {
	// ID is the anchor of the table on the HTML page, or empty.
	ID string
	// Title and Context form the heading: "TCP_RR" and "1 process · cross-node · one-core".
	Title, Context string
	// Columns heads the cells of each row; the first column is the row's name.
	Columns []Column
	Rows    []Row
	// Notes are lines below the table.
	Notes []string
	// In is the set of renderings that have the table; 0 means all.
	In Media
	// Fold hides the table on the HTML page behind this summary, unless it is empty.
	Fold   string
	Charts []Chart
	// More are further tables of the same figures, folded on the HTML page and absent elsewhere.
	More []*Table
}

// Column heads one column.
type Column struct {
	Title string
	// Short replaces Title on a terminal, if it is set.
	Short string
	// Better is "lower" or "higher"; lower is marked with an arrow. It is empty if neither is better.
	Better string
	// Left aligns the column left and allows line breaks.
	Left bool
	// Code marks names of networks, which Markdown renders as code.
	Code bool
	// Bar draws the ratio of each cell as a bar; only on a terminal.
	Bar bool
	// Anchor is the ID of the table that the column summarizes, or empty.
	Anchor string
}

// Row is one row of a table.
type Row struct {
	Name  string
	Cells []Cell
	// Note replaces the cells: the reason why there are none.
	Note string
	// Highlight marks Beeline, Total a sum, and Discarded values that do not count.
	Highlight, Total, Discarded bool
}

// Cell is one value of a table.
type Cell struct {
	// Text is the value: a ratio, a figure with its unit, or words.
	Text string
	// Mark is "~" if no difference is decided.
	Mark string
	// Interval is the 95 % interval of Text, or empty.
	Interval string
	// Figure is the absolute value behind a ratio, for renderings without a table of figures.
	Figure string
	// Ratio is the ratio that Text shows, for bars and charts; without values (N = 0) nothing is drawn.
	Ratio stats.Interval
	// Published are published ratios that compare with Ratio, for charts.
	Published []chart.Marker
	// Tip explains the cell to a reader who points at it.
	Tip string
	// Wrong marks a value that misses what is required, Missing the absence of a value.
	Wrong, Missing bool
}

// Chart is a drawing of a table's figures for the HTML page.
type Chart struct {
	SVG     template.HTML
	Caption template.HTML
	// Fold hides the chart behind this summary, unless it is empty.
	Fold string
}

// on reports whether a rendering has the table.
func (t *Table) on(m Media) bool {
	return t != nil && (t.In == 0 || t.In&m != 0) && len(t.Rows)+len(t.Notes) > 0
}

// add appends a row to the table.
func (t *Table) add(name string, cells ...Cell) *Row {
	t.Rows = append(t.Rows, Row{Name: name, Cells: cells, Highlight: isBeeline(name)})
	return &t.Rows[len(t.Rows)-1]
}

// columns makes the heads of a table whose rows are networks; the others are numbers.
func columns(first string, titles ...string) []Column {
	list := []Column{{Title: first, Left: true, Code: true}}
	for _, t := range titles {
		list = append(list, Column{Title: t})
	}
	return list
}

// texts makes a left-aligned column.
func texts(title string) Column { return Column{Title: title, Left: true} }

// text makes a cell of words; empty words are a dash.
func text(s string) Cell {
	if s == "" {
		return Cell{Text: dash, Missing: true}
	}
	return Cell{Text: s}
}

// cells makes cells of words.
func cells(list ...string) []Cell {
	out := make([]Cell, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return out
}

// none is the cell of a value that does not exist.
var none = Cell{Text: dash}

// ratioCell shows the ratio i with its mark and its interval.
func ratioCell(i stats.Interval) Cell {
	if i.N == 0 {
		return none
	}
	c := Cell{Text: ratio(&i.Median), Ratio: i}
	if i.Undecided() {
		c.Mark = "~"
	}
	if i.Low != nil && i.High != nil {
		c.Interval = interval(i.Low, i.High)
	}
	return c
}

// split gives the cells of a ratio's own column and of its interval's.
func split(c Cell) []Cell {
	span := text(c.Interval)
	span.Missing = false
	c.Interval = ""
	return []Cell{c, span}
}

// Head lists the columns that the HTML page shows: all but bars, which a chart replaces.
func (t *Table) Head() []Column {
	var list []Column
	for _, c := range t.Columns {
		if !c.Bar {
			list = append(list, c)
		}
	}
	return list
}

// Column is the column of the cell i, nil if the HTML page does not show it.
func (t *Table) Column(i int) *Column {
	if t.Columns[i+1].Bar {
		return nil
	}
	return &t.Columns[i+1]
}

// Bars reports whether the HTML page draws ratios as bars: in tables of ratios without a chart.
func (t *Table) Bars() bool { return len(t.Charts) == 0 && t.Columns[len(t.Columns)-1].Anchor != "" }

// Pair reports whether the HTML page sets the table beside its chart: if there is one chart and the table is narrow.
func (t *Table) Pair() bool {
	open := 0
	for _, c := range t.Charts {
		if c.Fold == "" {
			open++
		}
	}
	return open == 1 && t.Fold == "" && len(t.Head()) <= 8
}

// ratioChart draws the ratios of a column. A chart of fewer than two ratios shows nothing and is left out.
func (t *Table) ratioChart(column int, c chart.Ratio) {
	drawn := 0
	for _, r := range t.Rows {
		row := chart.RatioRow{Label: r.Name, Highlight: r.Highlight, Value: "no figure"}
		if strings.HasPrefix(r.Note, failed) {
			row.Value = failed
		}
		if r.Note == "" {
			if cell := r.Cells[column]; cell.Ratio.N > 0 {
				drawn++
				row.Ratio, row.Low, row.High = &cell.Ratio.Median, cell.Ratio.Low, cell.Ratio.High
				row.Value, row.Tip, row.Published = strings.TrimSpace(cell.Text+" "+cell.Mark), cell.Tip, cell.Published
			}
		}
		c.Rows = append(c.Rows, row)
	}
	if drawn > 1 {
		c.Desc += " Dots are medians of per-round ratios, lines their 95 % intervals. The table has the same figures."
		t.Charts = append(t.Charts, Chart{SVG: c.SVG()})
	}
}
