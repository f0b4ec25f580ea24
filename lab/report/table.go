package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
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
	// Run is the run whose method the HTML page describes; nil for a comparison.
	Run *result.Run
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

// Level decides which renderings have a table.
type Level int

// The levels: all renderings, all but Markdown, only the HTML page.
const (
	Everywhere Level = iota
	Detail
	PageOnly
)

// Table is a table with the charts of its figures. Its columns of numbers are aligned to the right.
type Table struct {
	// ID is the anchor of the table on the HTML page, or empty.
	ID string
	// Title and Context form the heading: "TCP_RR" and "1 process · cross-node · one-core".
	Title, Context string
	// Columns heads the cells of each row; the first column is the row's name.
	Columns []string
	// Anchors are the IDs of the tables that columns summarize, by the column's title.
	Anchors map[string]string
	Rows    []Row
	// Notes are lines below the table.
	Notes []string
	Level Level
	// Fold hides the table on the HTML page behind this summary, unless it is empty.
	Fold   string
	Charts []Chart
}

// Row is one row of a table.
type Row struct {
	Name  string
	Cells []Cell
	// Note replaces the cells: the reason why there are none.
	Note string
	// Class is "hot" for Beeline, "total" for a sum, "unusable" for values that do not count, or empty.
	Class string
}

// Cell is one value of a table.
type Cell struct {
	// Text is the value: a ratio, a figure with its unit, or words. A ratio ends with "~" if no difference is decided.
	Text string
	// Figure is the absolute value behind a ratio, for Markdown, which has no tables of figures.
	Figure string
	// Ratio is the ratio that Text shows, for charts; without values (N = 0) nothing is drawn.
	Ratio stats.Interval
	// Published is a published ratio that compares with Ratio, for charts; 0 is none.
	Published float64
	// Tip explains the cell to a reader who points at it.
	Tip string
	// Class is "wrong" for a value that misses what is required, "missing" for the absence of a value, or empty.
	Class string
}

// Chart is a drawing of a table's figures for the HTML page.
type Chart struct {
	SVG     template.HTML
	Caption template.HTML
	// Fold hides the chart behind this summary, unless it is empty.
	Fold string
}

// newTable makes a table without rows.
func newTable(level Level, title, context string, columns ...string) *Table {
	return &Table{Title: title, Context: context, Level: level, Columns: columns}
}

// better marks a column's title if lower values are better.
func better(title, direction string) string {
	if direction == "lower" {
		title += " ↓"
	}
	return title
}

// add appends a row. Values are texts, cells, or ratios to show with their intervals.
func (t *Table) add(name string, values ...any) *Row {
	r := Row{Name: name}
	if isBeeline(name) {
		r.Class = "hot"
	}
	for _, value := range values {
		var c Cell
		switch v := value.(type) {
		case Cell:
			c = v
		case stats.Interval:
			c = ratioCell(v)
			if v.Low != nil && v.High != nil {
				c.Text += " (" + interval(v.Low, v.High) + ")"
			}
		default:
			c.Text = fmt.Sprint(v)
		}
		if c.Text == "" || c.Text == dash {
			c.Text, c.Class = dash, "missing"
		}
		r.Cells = append(r.Cells, c)
	}
	t.Rows = append(t.Rows, r)
	return &t.Rows[len(t.Rows)-1]
}

// addMeasured appends a row unless it has no value.
func (t *Table) addMeasured(name string, values ...any) {
	if r := t.add(name, values...); !slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.Text != dash || c.Figure != "" }) {
		t.Rows = t.Rows[:len(t.Rows)-1]
	}
}

// none is the cell of a value that does not exist.
var none = Cell{Text: dash}

// ratioCell shows the ratio i without its interval.
func ratioCell(i stats.Interval) Cell {
	if i.N == 0 {
		return none
	}
	c := Cell{Text: ratio(&i.Median), Ratio: i}
	if i.Undecided() {
		c.Text += "~"
	}
	return c
}

// Numeric reports whether a column has numbers, and nothing else but absent values.
func (t *Table) Numeric(column int) bool {
	numbers := false
	for _, r := range t.Rows {
		if column == 0 || column > len(r.Cells) {
			continue
		}
		switch s := r.Cells[column-1].Text; {
		case s == dash || s == failed:
		case !strings.ContainsAny(s[:1], "0123456789+-"):
			return false
		default:
			numbers = true
		}
	}
	return numbers
}

// ratioChart draws the ratios of a column. A chart of fewer than two ratios shows nothing and is left out.
func (t *Table) ratioChart(column int, c chart.Rows, direction string) {
	drawn := 0
	for _, r := range t.Rows {
		row := chart.Row{Label: r.Name, Highlight: r.Class == "hot", Value: "no figure"}
		if strings.HasPrefix(r.Note, failed) {
			row.Value = failed
		}
		if r.Note == "" {
			if cell := r.Cells[column]; cell.Ratio.N > 0 {
				drawn++
				row.Value, row.Low, row.High = cell.Text, cell.Ratio.Low, cell.Ratio.High
				row.Marks = []chart.Mark{{At: cell.Ratio.Median, Tip: cell.Tip}}
				if cell.Published > 0 {
					row.Marks = append(row.Marks, chart.Mark{At: cell.Published, Shape: chart.Published, Tip: "published: " + ratio(&cell.Published)})
				}
			}
		}
		c.Rows = append(c.Rows, row)
	}
	if drawn > 1 {
		c.Unit = map[string]string{"higher": "better →", "lower": "← better"}[direction]
		c.Desc += " Dots are medians of per-round ratios, lines their 95 % intervals. The table has the same figures."
		t.Charts = append(t.Charts, Chart{SVG: c.SVG()})
	}
}
