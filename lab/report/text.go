package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// textWidth is the width of a terminal, in characters; tables are fitted into it if they can be.
	textWidth = 100
	// leastColumn is the width to which a column of words may shrink.
	leastColumn = 24
	// headWidth and shortWidth are the widths to which the head of a column of numbers is broken, unless its cells are
	// wider: by its title, and by its short title.
	headWidth  = 13
	shortWidth = 9
	barWidth   = 20
)

// Text renders the document for a terminal. Summaries and cautions come last, where a reader looks when a bench ends.
func (d *Document) Text(w io.Writer) error {
	out := &textWriter{bufio.NewWriter(w)}
	for _, line := range d.Provenance {
		out.line(line)
	}
	for _, line := range d.Key {
		out.wrapped("", line)
	}
	for _, summary := range []bool{false, true} {
		for _, s := range d.Sections {
			for _, t := range s.Tables {
				if s.Summary == summary && t.on(OnText) {
					out.table(t)
				}
			}
		}
	}
	if len(d.Cautions) > 0 {
		out.line("")
	}
	for _, c := range d.Cautions {
		out.wrapped("! ", c)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

type textWriter struct{ *bufio.Writer }

// line drops the blanks at its end, which padding leaves there.
func (o *textWriter) line(s string) { fmt.Fprintln(o, strings.TrimRight(s, " ")) }

// wrapped writes text in lines of the terminal's width, the first behind a sign.
func (o *textWriter) wrapped(sign, s string) {
	for _, l := range wrap(s, textWidth-width(sign)) {
		o.line(sign + l)
		sign = pad("", width(sign), true)
	}
}

func (o *textWriter) table(t *Table) {
	o.line("")
	heading := t.Title
	if t.Context != "" {
		heading += " · " + t.Context
	}
	o.line(heading)
	if len(t.Rows) > 0 {
		o.rows(t)
	}
	for _, n := range t.Notes {
		o.wrapped("  ", n)
	}
}

func (o *textWriter) rows(t *Table) {
	body := make([][]string, len(t.Rows))
	marked := make([]bool, len(t.Columns))
	for _, r := range t.Rows {
		for i, c := range r.Cells {
			marked[i+1] = marked[i+1] || c.Mark != ""
		}
	}
	widths := make([]int, len(t.Columns))
	fit := func(i int, s string) { widths[i] = max(widths[i], width(s)) }
	for n, r := range t.Rows {
		body[n] = append(body[n], r.Name)
		for i, c := range r.Cells {
			body[n] = append(body[n], c.text(t.Columns[i+1], marked[i+1]))
		}
		for i, s := range body[n] {
			fit(i, s)
		}
	}
	heads := make([][]string, len(t.Columns))
	for i, c := range t.Columns {
		heads[i] = c.head(widths[i])
		for _, l := range heads[i] {
			fit(i, l)
		}
	}
	shrink(t.Columns, widths)
	o.cells(t.Columns, widths, heads, true)
	for n, r := range t.Rows {
		if r.Note != "" {
			for i, l := range wrap(r.Note, textWidth-widths[0]-4) {
				o.line("  " + pad([]string{r.Name, ""}[min(i, 1)], widths[0], true) + "  " + l)
			}
			continue
		}
		lines := make([][]string, len(body[n]))
		for i, s := range body[n] {
			lines[i] = []string{s}
			if width(s) > widths[i] {
				lines[i] = wrap(s, widths[i])
			}
		}
		o.cells(t.Columns, widths, lines, false)
	}
}

// shrink makes columns of words narrower, the widest first, until the table fits.
func shrink(columns []Column, widths []int) {
	for {
		total, widest := 0, -1
		for i, w := range widths {
			total += w + 2
			if columns[i].Left && !columns[i].Code && w > leastColumn && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if total <= textWidth || widest < 0 {
			return
		}
		widths[widest]--
	}
}

// cells writes a row of cells that may have several lines: heads stand at the bottom, other cells at the top.
func (o *textWriter) cells(columns []Column, widths []int, cells [][]string, bottom bool) {
	height := 0
	for _, lines := range cells {
		height = max(height, len(lines))
	}
	for n := range height {
		var b strings.Builder
		for i, lines := range cells {
			at, s := n, ""
			if bottom {
				at -= height - len(lines)
			}
			if at >= 0 && at < len(lines) {
				s = lines[at]
			}
			b.WriteString("  " + pad(s, widths[i], columns[i].Left || columns[i].Bar))
		}
		if s := b.String(); strings.TrimSpace(s) != "" {
			o.line(s)
		}
	}
}

// head is the title of a column with cells of the given width, broken into lines if it heads numbers.
func (c Column) head(cells int) []string {
	s, least := c.Title, headWidth
	if c.Short != "" {
		s, least = c.Short, shortWidth
	}
	if c.Better == "lower" {
		s += " ↓"
	}
	if c.Left {
		return []string{s}
	}
	return wrap(s, max(least, cells))
}

// text renders a cell. In a column with marks, cells without one end with a blank, so that the numbers are aligned.
func (c Cell) text(column Column, marked bool) string {
	if column.Bar {
		return bar(c.Ratio.Median)
	}
	s := c.Text
	if marked && c.Mark == "" {
		s += " "
	}
	s += c.Mark
	if c.Interval != "" {
		s += " (" + c.Interval + ")"
	}
	return s
}

// bar draws a ratio; the full width is 1.25.
func bar(r float64) string {
	const full = 1.25
	if r > full {
		return strings.Repeat("█", barWidth-1) + "▶"
	}
	eighths := int(max(r, 0)/full*barWidth*8 + 0.5)
	return strings.Repeat("█", eighths/8) + []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[eighths%8]
}

func width(s string) int { return utf8.RuneCountInString(s) }

// pad fills s with blanks up to n characters, behind it if left.
func pad(s string, n int, left bool) string {
	blanks := strings.Repeat(" ", max(n-width(s), 0))
	if left {
		return s + blanks
	}
	return blanks + s
}

// wrap breaks s into lines of at most n characters, if its words allow it.
func wrap(s string, n int) []string {
	var lines []string
	for _, word := range strings.Fields(s) {
		if last := len(lines) - 1; last >= 0 && width(lines[last])+1+width(word) <= n {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}
