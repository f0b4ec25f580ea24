package report

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
)

// latencySection is the percentiles of one figure.
type latencySection struct {
	Title, Heading string
	Chart          template.HTML
	Rows           []latencyRow
}

type latencyRow struct {
	Name      string
	At        [4]string
	Count     string
	Highlight bool
}

func latencySections(v *view) []latencySection {
	var list []latencySection
	var c chart.Percentiles
	var current figureKey
	flush := func() {
		n := len(list)
		if n == 0 {
			return
		}
		for _, name := range v.failed(current) {
			list[n-1].Rows = append(list[n-1].Rows, latencyRow{Name: name, At: [4]string{dash, dash, dash, dash}, Count: "failed", Highlight: name == subject})
			c.Rows = append(c.Rows, chart.PercentileRow{Label: name, Absent: "failed", Highlight: name == subject})
		}
		list[n-1].Chart = c.SVG()
	}
	for i, r := range v.percentiles() {
		if i == 0 || r.key != current {
			flush()
			current = r.key
			list = append(list, latencySection{Title: r.title, Heading: r.key.heading()})
			c = chart.Percentiles{Label: tickIn("µs"), Text: chart.Text{
				ID:    fmt.Sprintf("l-%d", len(list)),
				Title: r.title + ": percentiles of the round trip",
				Desc:  r.key.heading() + ". P50, P90, P99 and P99.9 on a logarithmic scale. The table beside the chart has the same figures.",
			}}
		}
		row := latencyRow{Name: r.contender, Count: group(fmt.Sprint(r.count)), Highlight: r.contender == subject}
		bar := chart.PercentileRow{Label: r.contender, At: r.at, Highlight: row.Highlight}
		for j, name := range []string{"P50", "P90", "P99", "P99.9"} {
			row.At[j] = micros(r.at[j])
			bar.Tips[j] = name + " " + row.At[j]
		}
		if !r.hasTail() {
			row.At[3], bar.At[3] = dash, 0
		}
		list[len(list)-1].Rows = append(list[len(list)-1].Rows, row)
		c.Rows = append(c.Rows, bar)
	}
	flush()
	return list
}

// failed are the contenders that were tried in a figure and have nothing to show there.
func (v *view) failed(key figureKey) (names []string) {
	for _, f := range v.figures {
		for _, r := range f.rows {
			if f.figureKey == key && r.tried > 0 && r.failed == r.tried {
				names = append(names, r.contender)
			}
		}
	}
	return names
}

// cpuSection is the CPU time per unit of work in one figure.
type cpuSection struct {
	Title, Heading, Unit string
	Chart                template.HTML
	Rows                 []cpuRow
}

type cpuRow struct {
	Name, User, System, Softirq, Total, Steal string
	Highlight                                 bool
}

// cpuUnit says in which unit the CPU time for one unit of work is shown.
var cpuUnit = map[string]struct {
	scale float64 // per second of CPU time
	name  string
}{
	"GB":          {1e3, "ms"},
	"transaction": {1e6, "µs"},
	"message":     {1e6, "µs"},
}

func cpuSections(v *view) []cpuSection {
	var list []cpuSection
	for _, f := range v.figures {
		unit, ok := cpuUnit[f.Work]
		if !ok {
			continue
		}
		s := cpuSection{Title: f.Title, Heading: f.heading(), Unit: unit.name + " of CPU time per " + f.Work}
		c := chart.Stack{Unit: s.Unit, Text: chart.Text{
			ID: "p-" + f.anchor(), Title: f.Title + ": CPU time per " + f.Work,
			Desc: f.heading() + ". Both ends together, in user mode, system mode and softirq. The table beside the chart has the same figures, with steal.",
		}}
		for _, r := range f.rows {
			cpu, work := v.cpu(f, r.contender)
			if work <= 0 || cpu.User+cpu.System+cpu.Softirq <= 0 {
				continue
			}
			per := unit.scale / work
			user, system, softirq := cpu.User*per, cpu.System*per, cpu.Softirq*per
			row := cpuRow{r.contender, significant(user), significant(system), significant(softirq), significant(user + system + softirq), significant(cpu.Steal * per), r.contender == subject}
			s.Rows = append(s.Rows, row)
			c.Rows = append(c.Rows, chart.StackRow{Label: r.contender, Value: row.Total, Highlight: row.Highlight, Parts: []chart.Part{
				{Size: user, Fill: 0, Tip: "user " + row.User},
				{Size: system, Fill: 1, Tip: "system " + row.System},
				{Size: softirq, Fill: 2, Tip: "softirq " + row.Softirq},
			}})
		}
		if len(s.Rows) > 0 {
			s.Chart = c.SVG()
			list = append(list, s)
		}
	}
	return list
}

// cpu adds up the CPU time of a contender's kept samples and the work done in them.
func (v *view) cpu(f figure, contender string) (cpu result.CPU, work float64) {
	for _, s := range v.run.Samples {
		if s.Network != contender || !v.counts(s) || f.figureKey != keyOf(s) {
			continue
		}
		done := workDone(f, s)
		if done <= 0 {
			continue
		}
		work += done
		cpu.User += s.CPU.User
		cpu.System += s.CPU.System
		cpu.Softirq += s.CPU.Softirq
		cpu.Steal += s.CPU.Steal
	}
	return cpu, work
}

// workDone turns a sample's headline figure into units of work: a rate times its seconds, a bit rate into
// gigabytes, a round trip into messages of one connection after the other.
func workDone(f figure, s result.Sample) float64 {
	value := s.Values[f.Metric]
	switch {
	case f.Work == "message" && s.Values[result.Messages] > 0:
		return s.Values[result.Messages]
	case f.Unit == "Gbit/s":
		return value / 8 * s.Seconds
	case f.Unit == "Mbit/s":
		return value / 8e3 * s.Seconds
	case strings.HasSuffix(f.Unit, "/s"):
		return value * s.Seconds
	case (f.Unit == "µs" || f.Unit == "us") && value > 0:
		return s.Seconds * 1e6 / value
	}
	return 0
}
