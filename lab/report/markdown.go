package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// markdownWidth is the width of a line of Markdown outside of tables, in characters.
const markdownWidth = 120

// Markdown renders the document for a page of its own.
func (d *Document) Markdown(w io.Writer) error {
	return d.markdown(w, slices.Concat(d.Provenance, d.Key), func(Section) bool { return true })
}

// Summary renders the summarizing sections as Markdown, for a README.
func (d *Document) Summary(w io.Writer) error {
	return d.markdown(w, d.Provenance, func(s Section) bool { return s.Summary })
}

func (d *Document) markdown(w io.Writer, head []string, include func(Section) bool) error {
	out := &markdownWriter{bufio.NewWriter(w)}
	for _, l := range head {
		if before, command, ok := strings.Cut(l, commandPrefix); ok {
			l = before + commandPrefix + code(command)
		}
		out.item(l)
	}
	for _, c := range d.Cautions {
		out.item("**" + c + "**")
	}
	for _, s := range d.Sections {
		for _, t := range s.Tables {
			if include(s) && t.on(OnMarkdown) {
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

// item writes an item of a list.
func (o *markdownWriter) item(s string) {
	sign := "* "
	for _, l := range wrap(s, markdownWidth-len(sign)) {
		o.line(sign + l)
		sign = "  "
	}
}

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
		o.line(strings.Join(wrap(n, markdownWidth), "\n"))
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
