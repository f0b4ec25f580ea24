package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Markdown renders the document as tables for a README.
func (d *Document) Markdown(w io.Writer) error {
	out := &markdownWriter{bufio.NewWriter(w)}
	for _, l := range append(slices.Clone(d.Provenance), d.Key...) {
		if before, command, ok := strings.Cut(l, commandPrefix); ok {
			l = before + commandPrefix + code(command)
		}
		out.line("* " + escape(l))
	}
	for _, c := range d.Cautions {
		out.line("* **" + escape(c) + "**")
	}
	for _, s := range d.Sections {
		for _, t := range s.Tables {
			if t.on(OnMarkdown) {
				out.table(t)
			}
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write Markdown: %w", err)
	}
	return nil
}

type markdownWriter struct{ *bufio.Writer }

func (o *markdownWriter) line(s string) { fmt.Fprintln(o, s) }

func (o *markdownWriter) table(t *Table) {
	heading := t.Title
	if t.Context != "" {
		heading += " · " + t.Context
	}
	o.line("")
	o.line("**" + escape(heading) + "**")
	o.line("")
	var head, rule []string
	for _, c := range t.Columns {
		if c.Bar {
			continue
		}
		name, align := c.Title, "---:"
		if c.Better == "lower" {
			name += " ↓"
		}
		if c.Left {
			align = "---"
		}
		head, rule = append(head, name), append(rule, align)
	}
	o.row(head)
	o.row(rule)
	for _, r := range t.Rows {
		name := r.Name
		if t.Columns[0].Code {
			name = code(name)
		}
		row := []string{name}
		for i, c := range r.Cells {
			if !t.Columns[i+1].Bar {
				row = append(row, c.markdown())
			}
		}
		if r.Note != "" {
			row = append(make([]string, 0, len(head)), name, r.Note)
		}
		for len(row) < len(head) {
			row = append(row, "")
		}
		o.row(row)
	}
	for _, n := range t.Notes {
		o.line("")
		o.line(escape(n))
	}
}

func (o *markdownWriter) row(cells []string) {
	for i, c := range cells {
		cells[i] = escape(c)
	}
	o.line("| " + strings.Join(cells, " | ") + " |")
}

func (c Cell) markdown() string {
	s := c.Text
	if c.Wrong {
		s = "**" + s + "**"
	}
	if c.Mark != "" {
		s += " " + c.Mark
	}
	if c.Interval != "" {
		s += " (" + c.Interval + ")"
	}
	if c.Figure != "" {
		s += " · " + c.Figure
	}
	return s
}

// escape makes one line of s that does not end a table's cell.
func escape(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// code marks s as code.
func code(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }
