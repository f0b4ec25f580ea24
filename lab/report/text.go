package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// textWidth is the width of a terminal, in characters. Tables fit into it if their columns of words are at least
	// leastColumn wide.
	textWidth   = 100
	leastColumn = 24
	// headWidth is the width of the head of a column of numbers, unless its cells are wider.
	headWidth = 13
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
				if s.Summary == summary && t.Level <= Detail {
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
	for i, l := range wrap(s, textWidth-width(sign)) {
		if i > 0 {
			sign = strings.Repeat(" ", width(sign))
		}
		o.line(sign + l)
	}
}

func (o *textWriter) table(t *Table) {
	o.line("")
	o.line(listed(t.Title, t.Context))
	if len(t.Rows) > 0 {
		o.rows(t)
	}
	for _, n := range t.Notes {
		o.wrapped("  ", n)
	}
}

func (o *textWriter) rows(t *Table) {
	marked := make([]bool, len(t.Columns))
	for _, r := range t.Rows {
		for i, c := range r.Cells {
			marked[i+1] = marked[i+1] || strings.HasSuffix(c.Text, "~")
		}
	}
	widths := make([]int, len(t.Columns))
	var body [][]string
	for _, r := range t.Rows {
		texts := []string{r.Name}
		for i, c := range r.Cells {
			if marked[i+1] && !strings.HasSuffix(c.Text, "~") {
				c.Text += " " // the digits of a column are aligned
			}
			texts = append(texts, c.Text)
		}
		for i, s := range texts {
			widths[i] = max(widths[i], width(s))
		}
		body = append(body, texts)
	}
	for i, title := range t.Columns {
		limit := width(title)
		if t.Numeric(i) {
			limit = max(widths[i], headWidth)
		}
		for _, l := range wrap(title, limit) {
			widths[i] = max(widths[i], width(l))
		}
	}
	shrink(t, widths)
	o.row(t, widths, t.Columns)
	for n, r := range t.Rows {
		if r.Note == "" {
			o.row(t, widths, body[n])
			continue
		}
		o.wrapped("  "+pad(r.Name, widths[0], true)+"  ", r.Note)
	}
}

// shrink makes columns of words narrower, the widest first, until the table fits.
func shrink(t *Table, widths []int) {
	for {
		total, widest := 0, -1
		for i, w := range widths {
			total += w + 2
			if !t.Numeric(i) && w > leastColumn && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if total <= textWidth || widest < 0 {
			return
		}
		widths[widest]--
	}
}

// row writes cells, each in as many lines as its width demands.
func (o *textWriter) row(t *Table, widths []int, cells []string) {
	lines := make([][]string, len(cells))
	height := 1
	for i, s := range cells {
		lines[i] = []string{s}
		if width(s) > widths[i] {
			lines[i] = wrap(s, widths[i])
		}
		height = max(height, len(lines[i]))
	}
	for n := range height {
		line := ""
		for i := range cells {
			s := ""
			if n < len(lines[i]) {
				s = lines[i][n]
			}
			line += "  " + pad(s, widths[i], !t.Numeric(i))
		}
		o.line(line)
	}
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
