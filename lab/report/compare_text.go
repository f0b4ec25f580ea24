package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// Compare renders for a terminal how run b differs from run a.
func Compare(w io.Writer, a, b *result.Run) error {
	out := &terminal{Writer: bufio.NewWriter(w), names: leastNames}
	c := newComparison(a, b)
	for i, v := range []*view{c.a, c.b} {
		for j, l := range provenance(v.run) {
			out.printf("%s  %s", [2]string{[2]string{"A", "B"}[i], " "}[min(j, 1)], l)
		}
	}
	for _, n := range c.notes {
		out.printf("%s", n)
	}
	out.printf("B ÷ A with an interval of at least 95 %%.   ~ = no difference decided: it includes 1 or is missing.  %s = none.", dash)
	for _, f := range c.figures {
		out.compared(f)
	}
	if len(c.figures) == 0 {
		out.printf("")
		out.printf("%s", nothingInCommon)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

func (t *terminal) compared(f comparedFigure) {
	t.printf("")
	t.printf("%s · %s%s", f.Title, f.heading(), direction(f.figure))
	t.printf("  %s %11s %11s %7s   %s %17s   %s", pad("", 15), "A", "B", "B ÷ A", pad("interval", 13), "ratio A → B", "B ÷ A of the ratios")
	for _, r := range f.rows {
		line := fmt.Sprintf("  %s %s %s %s", pad(r.contender, 15), left(r.a, 11), left(r.b, 11), r.values)
		if r.ratioA != nil {
			line += fmt.Sprintf("   %s → %s %s", left(ratio(r.ratioA), 5), left(ratio(r.ratioB), 5), r.ratios)
		}
		t.printf("%s", line)
	}
}

// CompareMarkdown renders how run b differs from run a as tables, for a pull request or a README.
func CompareMarkdown(w io.Writer, a, b *result.Run) error {
	out := &markdown{bufio.NewWriter(w)}
	c := newComparison(a, b)
	for i, v := range []*view{c.a, c.b} {
		out.printf("%s: %s", []string{"A", "B"}[i], strings.Join(provenance(v.run), " · "))
		out.printf("")
	}
	for _, n := range c.notes {
		out.printf("%s", n)
		out.printf("")
	}
	out.printf("Each cell: B ÷ A of the values, with an interval of at least 95 %%, and B ÷ A of the ratios to `node`. `~`: no difference decided. ↓: lower is better.")
	if len(c.figures) == 0 {
		out.printf("")
		out.printf(nothingInCommon)
	}
	for _, f := range c.figures {
		out.compared(f)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write comparison: %w", err)
	}
	return nil
}

func (m *markdown) compared(f comparedFigure) {
	m.printf("")
	m.printf("**%s · %s%s**", f.Title, f.heading(), direction(f.figure))
	m.printf("")
	m.cells("", "A", "B", "B ÷ A", "interval", "ratio A", "ratio B", "B ÷ A of the ratios", "interval")
	m.cells("---", "---:", "---:", "---:", "---:", "---:", "---:", "---:", "---:")
	for _, r := range f.rows {
		m.cells("`"+r.contender+"`", r.a, r.b, strings.TrimSpace(r.values.quotient()+" "+r.values.mark()), interval(r.values.Low, r.values.High),
			ratio(r.ratioA), ratio(r.ratioB), strings.TrimSpace(r.ratios.quotient()+" "+r.ratios.mark()), interval(r.ratios.Low, r.ratios.High))
	}
}
