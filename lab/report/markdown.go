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
	return d.markdown(w, slices.Concat(d.Provenance, d.Key), d.Sections)
}

// Summary renders the summarizing sections as Markdown, for a README.
func (d *Document) Summary(w io.Writer) error {
	sections := slices.DeleteFunc(slices.Clone(d.Sections), func(s Section) bool { return !s.Summary })
	return d.markdown(w, d.Provenance, sections)
}

func (d *Document) markdown(w io.Writer, head []string, sections []Section) error {
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
	for _, s := range sections {
		for _, t := range s.Tables {
			if t.Level == Everywhere {
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

// item writes an item of a list.
func (o *markdownWriter) item(s string) {
	fmt.Fprintln(o, "* "+strings.Join(wrap(s, markdownWidth-2), "\n  "))
}

func (o *markdownWriter) table(t *Table) {
	fmt.Fprintf(o, "\n**%s**\n\n", escape(listed(t.Title, t.Context)))
	rule := make([]string, len(t.Columns))
	for i := range t.Columns {
		rule[i] = "---"
		if t.Numeric(i) {
			rule[i] = "---:"
		}
	}
	o.row(t.Columns)
	o.row(rule)
	for _, r := range t.Rows {
		row := []string{r.Name}
		if t.Columns[0] == "Network" || t.Columns[0] == "Route" {
			row[0] = code(r.Name)
		}
		for _, c := range r.Cells {
			s := c.Text
			if c.Class == "wrong" {
				s = "**" + s + "**"
			}
			row = append(row, listed(s, c.Figure))
		}
		if r.Note != "" {
			row = append(row, r.Note)
		}
		o.row(append(row, make([]string, len(t.Columns)-len(row))...))
	}
	for _, n := range t.Notes {
		fmt.Fprintf(o, "\n%s\n", strings.Join(wrap(n, markdownWidth), "\n"))
	}
}

func (o *markdownWriter) row(cells []string) {
	var escaped []string
	for _, c := range cells {
		escaped = append(escaped, escape(c))
	}
	fmt.Fprintln(o, "| "+strings.Join(escaped, " | ")+" |")
}

// escape makes one line of s that does not end a table's cell.
func escape(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// code marks s as code.
func code(s string) string { return "`" + strings.ReplaceAll(s, "`", "'") + "`" }
