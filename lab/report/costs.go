package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// percentiles are the shares of the latency tables, with their names.
var (
	percentiles     = [4]float64{0.50, 0.90, 0.99, 0.999}
	percentileNames = [4]string{"P50", "P90", "P99", "P99.9"}
)

// tailCount is the least number of round trips of which the P99.9 is not simply the longest.
const tailCount = 1000

// latency has the percentiles of the merged histograms of all rounds, for each figure whose tool measures them.
func (v *view) latency() Section {
	s := Section{ID: "latency", Title: "Latency", Notes: []string{
		"Percentiles of round trips from the merged histograms of all rounds that count, as the upper bound of their bucket. They are never averaged.",
	}}
	for i, name := range percentileNames {
		s.Legend = append(s.Legend, LegendEntry{chart.PercentileSymbol(i), name})
	}
	for _, f := range v.figures {
		t := &Table{Title: f.work.Title + ": round trips", Context: context(f.key), In: OnText | OnHTML, Columns: columns(v.noun(), append(percentileNames[:], "round trips")...)}
		c := chart.Percentiles{Label: tickIn("µs"), Text: chart.Text{
			ID: "l-" + f.anchor(), Title: f.work.Title + ": percentiles of the round trip",
			Desc: context(f.key) + ". P50, P90, P99 and P99.9 on a logarithmic scale. The table has the same figures.",
		}}
		measured := false
		for _, r := range f.rows {
			merged, err := stats.Merge(v.histograms(f.key, r.network)...)
			n := stats.Total(merged)
			bar := chart.PercentileRow{Label: r.network, Highlight: isBeeline(r.network)}
			if err != nil || n == 0 {
				if r.tried > 0 && r.failed == r.tried {
					t.add(r.network).Note = "failed"
					bar.Absent = "failed"
					c.Rows = append(c.Rows, bar)
				}
				continue
			}
			measured = true
			var row []Cell
			for i, share := range percentiles {
				cell := none
				if i < 3 || n >= tailCount {
					bar.At[i] = stats.Percentile(merged, share)
					cell = text(quantity(bar.At[i], "µs"))
					bar.Tips[i] = percentileNames[i] + " " + cell.Text
				}
				row = append(row, cell)
			}
			t.add(r.network, append(row, text(count(n)))...)
			c.Rows = append(c.Rows, bar)
		}
		if measured {
			t.Charts = []Chart{{SVG: c.SVG()}}
			s.Tables = append(s.Tables, t)
		}
	}
	return s
}

func (v *view) histograms(key stats.Key, network string) []*result.Histogram {
	var list []*result.Histogram
	for i := range v.run.Samples {
		if s := &v.run.Samples[i]; s.Latency != nil && s.Network == network && v.counts(s) && key == stats.KeyOf(s) {
			list = append(list, s.Latency)
		}
	}
	return list
}

// cpu has the CPU time per unit of work by mode, for each figure with a unit of work.
func (v *view) cpu() Section {
	s := Section{ID: "cpu", Title: "CPU time per unit of work", Notes: []string{
		"CPU time of both ends of the path, from /proc/stat, divided by the work done. Steal is time of the hypervisor: it is not part of the sum.",
	}}
	for i, name := range []string{"user", "system", "softirq"} {
		s.Legend = append(s.Legend, LegendEntry{chart.FillSymbol(i), name})
	}
	for _, f := range v.figures {
		scale, unit := 1e6, "µs"
		switch f.work.Work {
		case "GB":
			scale, unit = 1e3, "ms"
		case "transaction", "message":
		default:
			continue
		}
		unit += " of CPU time per " + f.work.Work
		t := &Table{Title: f.work.Title, Context: context(f.key) + " · " + unit, In: OnHTML, Fold: "Figures", Columns: columns(v.noun(), "user", "system", "softirq", "sum", "steal")}
		c := chart.Stack{Unit: unit, Text: chart.Text{
			ID: "p-" + f.anchor(), Title: f.work.Title + ": CPU time per " + f.work.Work,
			Desc: context(f.key) + ". Both ends together, in user mode, system mode and softirq. The table has the same figures, with steal.",
		}}
		for _, r := range f.rows {
			cpu, work := v.cpuOf(f, r.network)
			if work <= 0 || cpu.User+cpu.System+cpu.Softirq <= 0 {
				continue
			}
			value := func(seconds float64) string { return significant(seconds * scale / work) }
			sum := value(cpu.User + cpu.System + cpu.Softirq)
			t.add(r.network, cells(value(cpu.User), value(cpu.System), value(cpu.Softirq), sum, value(cpu.Steal))...)
			bar := chart.StackRow{Label: r.network, Value: sum, Highlight: isBeeline(r.network)}
			for i, seconds := range []float64{cpu.User, cpu.System, cpu.Softirq} {
				bar.Parts = append(bar.Parts, chart.Part{Size: seconds * scale / work, Fill: i, Tip: s.Legend[i].Name + " " + value(seconds)})
			}
			c.Rows = append(c.Rows, bar)
		}
		if len(t.Rows) > 0 {
			t.Charts = []Chart{{SVG: c.SVG()}}
			s.Tables = append(s.Tables, t)
		}
	}
	return s
}

// cpuOf adds up the CPU time of a network's samples and the work done in them.
func (v *view) cpuOf(f figure, network string) (cpu result.CPU, work float64) {
	for i := range v.run.Samples {
		s := &v.run.Samples[i]
		if s.Network != network || !v.counts(s) || f.key != stats.KeyOf(s) {
			continue
		}
		if done := workDone(f.work, s); done > 0 {
			work += done
			cpu.User += s.CPU.User
			cpu.System += s.CPU.System
			cpu.Softirq += s.CPU.Softirq
			cpu.Steal += s.CPU.Steal
		}
	}
	return cpu, work
}

// workDone is the number of units of work (GB, transactions, messages) of a sample.
func workDone(w result.Workload, s *result.Sample) float64 {
	value := s.Values[w.Metric]
	switch {
	case w.Work == "message" && s.Values[result.Messages] > 0:
		return s.Values[result.Messages]
	case w.Unit == "Gbit/s":
		return value / 8 * s.Seconds
	case w.Unit == "Mbit/s":
		return value / 8e3 * s.Seconds
	case strings.HasSuffix(w.Unit, "/s"):
		return value * s.Seconds
	case w.Unit == "µs" && value > 0: // a round trip: one message after the other
		return s.Seconds * 1e6 / value
	}
	return 0
}

// programs is the BPF run time of one network on one path under one workload.
type programs struct {
	network, workload string
	path              result.Path
	perPacket         float64 // ns, all programs together
	list              []result.Program
}

// programTotals adds up the programs of each path. Programs without a packet count have no cost per packet.
func programTotals(run *result.Run) []programs {
	var list []programs
	for _, p := range run.Programs {
		if p.Packets == 0 {
			continue
		}
		i := slices.IndexFunc(list, func(t programs) bool { return t.network == p.Network && t.workload == p.Workload && t.path == p.Path })
		if i < 0 {
			i = len(list)
			list = append(list, programs{network: p.Network, workload: p.Workload, path: p.Path})
		}
		list[i].perPacket += float64(p.Nanoseconds) / float64(p.Packets)
		list[i].list = append(list[i].list, p)
	}
	// In the order in which a packet meets them.
	order := []string{"from_pod", "to_wire", "from_wire", "to_pod"}
	rank := func(p result.Program) int { return (slices.Index(order, p.Name) + len(order) + 1) % (len(order) + 1) }
	for _, t := range list {
		slices.SortStableFunc(t.list, func(a, b result.Program) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
		})
	}
	return list
}

// bpf has the run time of BPF programs per one-way packet, for each workload and path.
func (v *view) bpf() Section {
	s := Section{ID: "bpf", Title: "BPF run time", Notes: []string{
		"Run time of all BPF programs on a path per one-way packet, from rounds of their own because the kernel's statistics cost time. A GSO packet counts once.",
	}}
	fill := func(name string) int {
		i := slices.IndexFunc(s.Legend, func(l LegendEntry) bool { return l.Name == name })
		if i < 0 {
			i = len(s.Legend)
			s.Legend = append(s.Legend, LegendEntry{chart.FillSymbol(i), name})
		}
		return i
	}
	var drawings []*chart.Stack
	for _, p := range programTotals(v.run) {
		title := "BPF run time per one-way packet: " + v.workload(p.workload).Title
		i := slices.IndexFunc(s.Tables, func(t *Table) bool { return t.Title == title && t.Context == string(p.path) })
		if i < 0 {
			i = len(s.Tables)
			s.Tables = append(s.Tables, &Table{Title: title, Context: string(p.path), In: OnText | OnHTML, Columns: []Column{
				{Title: "Network", Left: true, Code: true}, texts("program"), {Title: "per packet"}, {Title: "per run"}, {Title: "runs"}, {Title: "packets"}}})
			drawings = append(drawings, &chart.Stack{Unit: "ns per one-way packet", Text: chart.Text{
				ID: fmt.Sprintf("bpf-%d", i), Title: title + ", " + string(p.path),
				Desc: "One bar per network. Segments are programs, in the order in which a packet meets them. The table has the same figures.",
			}})
		}
		bar := chart.StackRow{Label: p.network, Value: nanos(p.perPacket), Highlight: isBeeline(p.network)}
		for _, one := range p.list {
			size, run := float64(one.Nanoseconds)/float64(one.Packets), dash
			if one.Runs > 0 {
				run = nanos(float64(one.Nanoseconds) / float64(one.Runs))
			}
			s.Tables[i].add(p.network, cells(one.Name, nanos(size), run, count(one.Runs), count(one.Packets))...)
			bar.Parts = append(bar.Parts, chart.Part{Name: one.Name, Size: size, Fill: fill(one.Name), Tip: one.Name + " " + nanos(size)})
		}
		s.Tables[i].add(p.network, text("sum"), text(nanos(p.perPacket)), Cell{}, Cell{}, Cell{}).Total = true
		drawings[i].Rows = append(drawings[i].Rows, bar)
	}
	for i, d := range drawings {
		s.Tables[i].Charts = []Chart{{SVG: d.SVG()}}
	}
	return s
}

// footprint has what networks cost without traffic, the fastest ADD first.
func (v *view) footprint() Section {
	t := &Table{Title: "Footprint", Columns: columns("Network", "CNI ADD P50", "CNI ADD P99", "CNI DEL P50",
		"BPF per one-way packet, cross-node", "agent RSS", "BPF maps", "idle CPU", "pods")}
	t.Columns[4].Short = "BPF per packet"
	bpf := map[string]string{}
	list := slices.Clone(v.run.Footprints)
	for _, p := range programTotals(v.run) {
		if p.path == result.CrossNode && bpf[p.network] == "" {
			bpf[p.network] = nanos(p.perPacket)
			if !slices.ContainsFunc(list, func(f result.Footprint) bool { return f.Network == p.network }) {
				list = append(list, result.Footprint{Network: p.network})
			}
		}
	}
	p50 := func(f result.Footprint) float64 {
		if len(f.AddMilliseconds) == 0 {
			return 1e300
		}
		return stats.Quantile(f.AddMilliseconds, 0.5)
	}
	slices.SortStableFunc(list, func(a, b result.Footprint) int { return cmp.Compare(p50(a), p50(b)) })
	c := chart.Strip{Log: true, Label: tickIn("ms"), Text: chart.Text{
		ID: "add", Title: "CNI ADD, from the start of the plugin to its result",
		Desc: "Each dot is one pod. The two bars of a row are P50 and P99. Logarithmic scale. The table has the same figures.",
	}}
	few := false
	for _, f := range list {
		idle := ""
		if f.IdleCPU != nil {
			idle = fmt.Sprintf("%.2f %%", *f.IdleCPU*100)
		}
		t.add(f.Network, cells(quantile(f.AddMilliseconds, 0.50), quantile(f.AddMilliseconds, 0.99), quantile(f.DelMilliseconds, 0.50), bpf[f.Network],
			positive(float64(f.AgentRSSBytes), "B"), positive(float64(f.MapBytes), "B"), idle, positive(float64(f.Pods), ""))...)
		n := len(f.AddMilliseconds)
		if n == 0 {
			continue
		}
		few = few || n < 100
		row := chart.StripRow{Label: f.Network, Value: quantile(f.AddMilliseconds, 0.5), Highlight: isBeeline(f.Network),
			Ticks: []float64{p50(f), stats.Quantile(f.AddMilliseconds, 0.99)}}
		for i, ms := range f.AddMilliseconds {
			row.Points = append(row.Points, chart.StripPoint{Value: ms, Tip: fmt.Sprintf("pod %d: %s", i+1, quantity(ms, "ms"))})
		}
		c.Rows = append(c.Rows, row)
	}
	if few {
		t.Notes = []string{"The P99 of fewer than 100 pods is the slowest of them."}
	}
	if len(c.Rows) > 0 {
		t.Charts = []Chart{{SVG: c.SVG(), Caption: template.HTML("CNI ADD: one dot is one pod, the two bars are P50 and P99. Logarithmic scale.")}}
	}
	return Section{ID: "footprint", Title: "Footprint", Tables: []*Table{t}, Notes: []string{
		"The cost of a network without traffic. CNI ADD is the time from the start of the plugin to its result. A dash means that there is nothing to measure.",
	}}
}
