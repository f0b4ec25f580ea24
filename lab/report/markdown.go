package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// lineWidth is the width of a line outside of tables, in characters.
const lineWidth = 100

// Markdown renders the document for a page of its own.
func (d *Document) Markdown(w io.Writer) error {
	return write(w, items(d.Provenance), items(d.Key), d.cautions(), d.tables(Everywhere, true), d.tables(Everywhere, false))
}

// Summary renders the summarizing sections as Markdown, for a README.
func (d *Document) Summary(w io.Writer) error {
	return write(w, items(d.Provenance), d.cautions(), d.tables(Everywhere, true))
}

// Text renders the document for a terminal: as Markdown, with details. Summaries and cautions come last, where a reader
// looks when a bench ends.
func (d *Document) Text(w io.Writer) error {
	return write(w, items(d.Provenance), items(d.Key), d.tables(Detail, false), d.tables(Detail, true), "\n", d.cautions())
}

func write(w io.Writer, parts ...string) error {
	if _, err := io.WriteString(w, strings.Join(parts, "")); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (d *Document) cautions() string {
	var list []string
	for _, c := range d.Cautions {
		list = append(list, "**"+c+"**")
	}
	return items(list)
}

// items are the items of a list.
func items(list []string) string {
	var b strings.Builder
	for _, s := range list {
		if before, command, ok := strings.Cut(s, commandPrefix); ok {
			s = before + commandPrefix + code(command)
		}
		line := "*"
		for _, word := range strings.Fields(s) {
			if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineWidth {
				b.WriteString(line + "\n")
				line = " "
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// tables are the tables up to a level of the sections that summarize, or of the others.
func (d *Document) tables(level Level, summary bool) string {
	var b strings.Builder
	for _, s := range d.Sections {
		for _, t := range s.Tables {
			if s.Summary == summary && t.Level <= level {
				fmt.Fprintf(&b, "\n**%s**\n\n%s", escape(listed(t.Title, t.Context)), t.markdown())
			}
		}
	}
	return b.String()
}

// markdown are the rows of the table, aligned for readers of the source, and its notes.
func (t *Table) markdown() string {
	rows := [][]string{t.Columns, make([]string, len(t.Columns))}
	widths := make([]int, len(t.Columns))
	for i, title := range t.Columns {
		widths[i] = max(utf8.RuneCountInString(title), len("---"))
	}
	for _, r := range t.Rows {
		row := append(make([]string, 0, len(t.Columns)), r.Name)
		if t.Columns[0] == "Network" || t.Columns[0] == "Route" {
			row[0] = escape(code(r.Name))
		}
		for _, c := range r.Cells {
			if c.Class == "wrong" {
				c.Text = "**" + c.Text + "**"
			}
			row = append(row, escape(listed(c.Text, c.Figure)))
		}
		for i, s := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(s))
		}
		if r.Note != "" { // it may be wider than the column
			row = append(row, escape(r.Note))
		}
		rows = append(rows, append(row, make([]string, len(t.Columns)-len(row))...))
	}
	var b strings.Builder
	for n, row := range rows {
		for i, s := range row {
			width := widths[i]
			if n == 1 {
				s = strings.Repeat("-", width)
			}
			switch {
			case t.Numeric(i) && n == 1:
				s = s[1:] + ":"
			case !t.Numeric(i):
				width = -width // to the left
			}
			fmt.Fprintf(&b, "| %*s ", width, s)
		}
		b.WriteString("|\n")
	}
	for _, n := range t.Notes {
		b.WriteString("\n" + n + "\n")
	}
	return b.String()
}

// escape makes one line of s that does not end a table's cell.
func escape(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// code marks s as code.
func code(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }
