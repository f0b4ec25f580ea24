package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/result"
)

// markdownColumns is how many figures a Markdown table holds before it is split.
const markdownColumns = 6

// Markdown renders the results as tables for a README, marked with the machine, the kernel and the date.
func Markdown(w io.Writer, run *result.Run) error {
	out := &markdown{bufio.NewWriter(w)}
	v := newView(run)
	out.provenance(v)
	for _, figures := range groupFigures(v.figures) {
		for part := range slices.Chunk(figures, markdownColumns) {
			out.figures(v, part)
		}
	}
	out.services(v)
	out.nodePort(v)
	out.policy(v)
	out.costs(v)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write markdown: %w", err)
	}
	return nil
}

type markdown struct{ *bufio.Writer }

func (m *markdown) printf(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

// cells writes one row of a table.
func (m *markdown) cells(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.Join(strings.Fields(c), " "), "|", `\|`)
	}
	m.printf("| %s |", strings.Join(cells, " | "))
}

func (m *markdown) provenance(v *view) {
	run := v.run
	date := "an unknown date"
	if !run.Started.IsZero() {
		date = run.Started.UTC().Format("2006-01-02")
	}
	where := machine(run.Environment)
	if run.Cluster != nil {
		where = clusterLine(run.Cluster, run.Settings.MTU) + " · " + where
	}
	m.printf("Measured on %s, %s; %s.", date, where, strings.ReplaceAll(v.compared(), " · ", ", "))
	if len(run.Command) > 0 {
		m.printf("Command: `%s` (%s).", strings.ReplaceAll(commandText(run.Command), "`", "'"), run.Version)
	}
	m.printf("")
	m.printf("Each cell: ratio to `node` in the same round (median), then the contender's own figure. `~`: no difference decided, the 95 %%")
	m.printf("interval includes 1 or there are too few rounds for one. ↓: lower is better. A/A check, `node` against `node`: %s", v.againCheck().orNone())
}

func (a againResult) orNone() string {
	if a.n == 0 {
		return "not in this run."
	}
	return a.sentence()
}

func (m *markdown) figures(v *view, figures []figure) {
	m.printf("")
	m.printf("**%s, %s**", title(string(figures[0].path)), figures[0].placement)
	m.printf("")
	head, rule := []string{title(v.noun())}, []string{"---"}
	for _, f := range figures {
		name := f.Title
		if f.procs > 1 {
			name += fmt.Sprintf(" ×%d", f.procs)
		}
		if f.Better == "lower" {
			name += " ↓"
		}
		head, rule = append(head, name), append(rule, "---:")
	}
	m.cells(head...)
	m.cells(rule...)
	for _, r := range v.overviewBlock(figures).rows {
		line := []string{"`" + r.name + "`"}
		for i, f := range figures {
			switch {
			case r.note != "" && i == 0:
				line = append(line, r.note)
			case r.note != "":
				line = append(line, "")
			default:
				line = append(line, f.markdownCell(r.name))
			}
		}
		m.cells(line...)
	}
}

func (f figure) markdownCell(contender string) string {
	text, _ := f.cell(contender)
	text = strings.TrimSpace(text)
	r := f.find(contender)
	if r == nil {
		return text
	}
	if strings.HasSuffix(text, "~") {
		text = strings.TrimSuffix(text, "~") + " ~"
	}
	return text + " · " + quantity(r.summary.Median, f.unitOf(r.summary))
}

// costs is one table of what networks cost beside the traffic itself.
func (m *markdown) costs(v *view) {
	rows, totals := footprintRows(v.run), programTotals(v.run)
	if len(rows) == 0 && len(totals) == 0 {
		return
	}
	bpf := map[string]string{}
	for _, t := range totals {
		if t.path == result.CrossNode && bpf[t.contender] == "" {
			bpf[t.contender] = nanos(t.perPacket)
		}
		if !slices.ContainsFunc(rows, func(r footprintRow) bool { return r.contender == t.contender }) {
			rows = append(rows, footprintRow{contender: t.contender, addP50: dash, addP99: dash, delP50: dash, rss: dash, maps: dash, idle: dash, pods: dash})
		}
	}
	m.printf("")
	m.printf("**Beside the traffic**")
	m.printf("")
	m.cells("Network", "CNI ADD P50", "CNI ADD P99", "BPF per one-way packet, cross-node", "Agent RSS", "BPF maps", "Idle CPU", "Pods")
	m.cells("---", "---:", "---:", "---:", "---:", "---:", "---:", "---:")
	for _, r := range rows {
		cost := bpf[r.contender]
		if cost == "" {
			cost = dash
		}
		m.cells("`"+r.contender+"`", r.addP50, r.addP99, cost, r.rss, r.maps, r.idle, r.pods)
	}
}
