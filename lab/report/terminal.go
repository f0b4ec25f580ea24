package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/beeline-cni/beeline/lab/result"
)

// The terminal rendering fits into 100 columns, its figure blocks into 80.
const (
	terminalWidth = 100
	barWidth      = 20
)

// Table renders run for a terminal: every figure by itself, then what surrounds them (A/A check,
// cross-check, BPF run time, footprints, discarded rounds, failures), and last, where the eye is when a
// bench ends, the overview of all ratios.
func Table(w io.Writer, run *result.Run) error {
	v := newView(run)
	out := &terminal{bufio.NewWriter(w), v.nameWidth()}
	out.header(v)
	for _, f := range v.figures {
		out.figure(f)
	}
	out.ways(run.Cluster)
	out.latency(v)
	out.again(v)
	out.crossChecks(run)
	out.programs(run)
	out.footprints(run)
	out.rounds(v)
	out.failures(v)
	out.services(v)
	out.nodePort(v)
	out.policy(v)
	out.overview(v)
	out.builds(v)
	out.promises(v)
	out.conclusion(v)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

type terminal struct {
	*bufio.Writer
	// names is how wide the names of contenders are.
	names int
}

// leastNames is the width of names that fits those of the network's contenders.
const leastNames = 15

func (v *view) nameWidth() int {
	width := leastNames
	for _, c := range v.contenders() {
		width = max(width, utf8.RuneCountInString(c.Name))
	}
	return width
}

// printf ends every line itself and drops the blanks that padding left at its end.
func (t *terminal) printf(format string, args ...any) {
	fmt.Fprintln(t, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func (t *terminal) header(v *view) {
	for _, l := range provenance(v.run) {
		t.printf("%s", l)
	}
	t.printf("Ratio = contender ÷ node within a round: median over rounds (not ratio of medians), 95 %% interval.")
	t.printf("~ = no difference decided: the interval includes 1 or is missing.  ↓ = lower is better.  %s = none.", dash)
}

func (t *terminal) figure(f figure) {
	t.printf("")
	t.printf("%s · %s%s", f.Title, f.heading(), direction(f))
	t.printf("  %s %12s %8s    %s", pad("", t.names), "median", "ratio", "95 % interval")
	for _, r := range f.rows {
		if r.unsupported == "" { // those are said once, in the overview
			t.row(r, f)
		}
	}
}

func direction(f figure) string {
	if f.Better == "lower" {
		return " · ↓"
	}
	return ""
}

func (t *terminal) row(r row, f figure) {
	name := pad(r.contender, t.names)
	if r.summary == nil {
		t.printf("  %s %s", name, clip(r.failure(), terminalWidth-18))
		return
	}
	s := r.summary
	median := left(quantity(s.Median, f.unitOf(s)), 12)
	note := ""
	if r.wire != nil {
		note = fmt.Sprintf("  %s × node cross-node", ratio(r.wire))
	}
	if r.failed > 0 {
		note += fmt.Sprintf("  %d of %d failed", r.failed, r.tried)
	}
	if r.contender == baseline {
		t.printf("  %s %s %8s    %s %s%s", name, median, "1", pad("baseline", 14), pad(bar(1), barWidth), note)
		return
	}
	size := ""
	if s.Ratio != nil {
		size = bar(*s.Ratio)
	}
	t.printf("  %s %s %8s %1s  %s %s%s", name, median, ratio(s.Ratio), mark(s), pad(interval(s.RatioLow, s.RatioHigh), 14), pad(size, barWidth), note)
}

// failure says why a row has no figure.
func (r row) failure() string {
	if len(r.errors) == 0 {
		return "no figure"
	}
	return fmt.Sprintf("failed %d of %d: %s", r.failed, r.tried, strings.Join(r.errors, "; "))
}

// unitOf prefers the summary's unit, which belongs to the number.
func (f figure) unitOf(s *result.Summary) string {
	if s.Unit != "" {
		return s.Unit
	}
	return f.Unit
}

// bar draws a ratio; the full width is 1.25, so that "more than node" still has room.
func bar(r float64) string {
	const full = 1.25
	if r > full {
		return strings.Repeat("█", barWidth-1) + "▶"
	}
	eighths := int(max(r, 0)/full*barWidth*8 + 0.5)
	partial := []string{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"}[eighths%8]
	return strings.Repeat("█", eighths/8) + partial
}

// overview is one line per contender and one column per figure.
func (t *terminal) overview(v *view) {
	for _, block := range overviewBlocks(v) {
		t.printf("")
		t.printf("%s", block.title)
		for _, line := range block.head {
			t.printf("  %s%s", pad("", t.names), cells(line))
		}
		for _, r := range block.rows {
			if r.note != "" {
				t.printf("  %s   %s", pad(r.name, t.names), clip(r.note, terminalWidth-t.names-6))
				continue
			}
			t.printf("  %s%s", pad(r.name, t.names), cells(r.cells))
		}
	}
}

// conclusion is what the run says, and what to know before believing it.
func (t *terminal) conclusion(v *view) {
	findings, cautions := v.findings(), v.cautions()
	if len(findings)+len(cautions) > 0 {
		t.printf("")
	}
	for _, f := range findings {
		t.wrapped("• ", f.Text())
	}
	for _, c := range cautions {
		t.wrapped("! ", c)
	}
}

// wrapped prints text in lines of the terminal's width, the first after the sign, the others below it.
func (t *terminal) wrapped(sign, text string) {
	for i, l := range wrap(text, terminalWidth-utf8.RuneCountInString(sign)) {
		if i > 0 {
			sign = pad("", utf8.RuneCountInString(sign))
		}
		t.printf("%s%s", sign, l)
	}
}

const cellWidth = 10

func cells(values []string) string {
	var b strings.Builder
	for _, v := range values {
		b.WriteString(left(v, cellWidth))
	}
	return b.String()
}

// pad fills s with blanks behind it up to n characters, left in front of it.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(n-utf8.RuneCountInString(s), 0))
}

func left(s string, n int) string {
	return strings.Repeat(" ", max(n-utf8.RuneCountInString(s), 0)) + s
}

// clip shortens s to one line of n characters.
func clip(s string, n int) string {
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return strings.TrimRight(string([]rune(s)[:n-1]), " ") + "…"
}

// wrap breaks s into lines of at most n characters.
func wrap(s string, n int) []string {
	var lines []string
	current := ""
	for _, word := range strings.Fields(s) {
		if current != "" && utf8.RuneCountInString(current)+1+utf8.RuneCountInString(word) > n {
			lines = append(lines, current)
			current = ""
		}
		if current != "" {
			current += " "
		}
		current += word
	}
	if current != "" {
		lines = append(lines, current)
	}
	return lines
}
