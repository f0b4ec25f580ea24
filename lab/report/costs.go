package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/lab/report/chart"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// percentiles are those of the latency tables, with their marks.
var percentiles = []struct {
	name, metric string
	shape        chart.Shape
}{{"P50", result.RTTP50, chart.Dot}, {"P90", result.RTTP90, chart.Bar}, {"P99", result.RTTP99, chart.Triangle}, {"P99.9", result.RTTP999, chart.Ring}}

// latency has the percentiles of the merged histograms of all rounds, for each figure whose tool measures them.
func (v *view) latency() Section {
	s := Section{ID: "latency", Title: "Latency", Notes: []string{
		"Percentiles of round trips from the merged histograms of all rounds that count, as the upper bound of their bucket. They are never averaged.",
	}}
	for _, p := range percentiles {
		s.Legend = append(s.Legend, LegendEntry{chart.Symbol(p.shape), p.name})
	}
	for _, f := range v.figures {
		t := newTable(Detail, f.work.Title+": round trips", context(f.key), v.noun())
		c := chart.Rows{Log: true, Label: tickIn("µs"), Text: chart.Text{
			ID: "l-" + f.anchor(), Title: f.work.Title + ": percentiles of the round trip",
			Desc: context(f.key) + ". P50, P90, P99 and P99.9 on a logarithmic scale. The table has the same figures.",
		}}
		for _, p := range percentiles {
			t.Columns = append(t.Columns, p.name)
		}
		for _, r := range f.rows {
			var row []any
			bar := chart.Row{Label: r.network, Highlight: isBeeline(r.network)}
			for _, p := range percentiles {
				shown := ""
				if found := v.summary(f.key, r.network, p.metric); found != nil {
					shown = quantity(found.Median, found.Unit)
					bar.Marks = append(bar.Marks, chart.Mark{At: found.Median, Shape: p.shape, Tip: p.name + " " + shown})
					bar.Low, bar.High = &bar.Marks[0].At, &found.Median
				}
				row = append(row, shown)
			}
			if len(bar.Marks) > 0 {
				t.add(r.network, row...)
				c.Rows = append(c.Rows, bar)
			}
		}
		if len(t.Rows) > 0 {
			t.Charts = []Chart{{SVG: c.SVG()}}
			s.Tables = append(s.Tables, t)
		}
	}
	return s
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
		if f.work.Work == "GB" {
			scale, unit = 1e3, "ms"
		}
		unit += " of CPU time per " + f.work.Work
		t := newTable(PageOnly, f.work.Title, listed(context(f.key), unit), v.noun(), "user", "system", "softirq", "sum", "steal")
		c := chart.Rows{Unit: unit, Text: chart.Text{
			ID: "p-" + f.anchor(), Title: f.work.Title + ": CPU time per " + f.work.Work,
			Desc: context(f.key) + ". Both ends together, in user mode, system mode and softirq. The table has the same figures, with steal.",
		}}
		for _, r := range f.rows {
			cpu, work := cpuOf(f.work, r.points)
			if work <= 0 || stats.Busy(cpu) <= 0 {
				continue
			}
			value := func(seconds float64) string { return significant(seconds * scale / work) }
			t.add(r.network, value(cpu.User), value(cpu.System), value(cpu.Softirq), value(stats.Busy(cpu)), value(cpu.Steal))
			bar := chart.Row{Label: r.network, Value: value(stats.Busy(cpu)), Highlight: isBeeline(r.network)}
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

// cpuOf adds up the CPU time of the samples that count and the work done in them.
func cpuOf(w result.Workload, points []point) (cpu result.CPU, work float64) {
	for _, p := range points {
		if done := stats.Work(w, p.Sample); done > 0 && !p.discarded {
			work += done
			cpu.User += p.CPU.User
			cpu.System += p.CPU.System
			cpu.Softirq += p.CPU.Softirq
			cpu.Steal += p.CPU.Steal
		}
	}
	return cpu, work
}

// programs are the BPF programs of a network on one path under one workload, in the order in which a packet meets them, and
// their run time for one packet together, in ns. Programs without a packet count have no cost per packet.
func (v *view) programs(network, workload string, path result.Path) (list []result.Program, perPacket float64) {
	for _, p := range v.run.Programs {
		if p.Network == network && p.Workload == workload && p.Path == path && p.Packets > 0 {
			list = append(list, p)
			perPacket += float64(p.Nanoseconds) / float64(p.Packets)
		}
	}
	order := []string{"from_pod", "to_wire", "from_wire", "to_pod"}
	rank := func(p result.Program) int { return (slices.Index(order, p.Name) + len(order) + 1) % (len(order) + 1) }
	slices.SortStableFunc(list, func(a, b result.Program) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Name, b.Name))
	})
	return list, perPacket
}

// bpf has the run time of BPF programs per one-way packet, for each workload and path.
func (v *view) bpf() Section {
	s := Section{ID: "bpf", Title: "BPF run time", Notes: []string{
		"Run time of all BPF programs on a path per one-way packet, from rounds of their own because the kernel's statistics cost time. A GSO packet counts once.",
	}}
	for _, w := range v.run.Workloads {
		for _, path := range []result.Path{result.CrossNode, result.SameNode} {
			if t := v.bpfTable(&s, w, path); len(t.Rows) > 0 {
				s.Tables = append(s.Tables, t)
			}
		}
	}
	return s
}

func (v *view) bpfTable(s *Section, w result.Workload, path result.Path) *Table {
	t := newTable(Detail, "BPF run time per one-way packet: "+w.Title, string(path), "Network", "program", "per packet", "per run", "runs", "packets")
	c := chart.Rows{Unit: "ns per one-way packet", Text: chart.Text{
		ID: "bpf-" + w.Name + "-" + string(path), Title: t.Title + ", " + t.Context,
		Desc: "One bar per network. Segments are programs, in the order in which a packet meets them. The table has the same figures.",
	}}
	for _, n := range v.run.Networks {
		list, perPacket := v.programs(n.Name, w.Name, path)
		if len(list) == 0 {
			continue
		}
		bar := chart.Row{Label: n.Name, Value: quantity(perPacket, "ns"), Highlight: isBeeline(n.Name)}
		for _, p := range list {
			fill := slices.IndexFunc(s.Legend, func(l LegendEntry) bool { return l.Name == p.Name })
			if fill < 0 {
				fill = len(s.Legend)
				s.Legend = append(s.Legend, LegendEntry{chart.FillSymbol(fill), p.Name})
			}
			size, run := float64(p.Nanoseconds)/float64(p.Packets), dash
			if p.Runs > 0 {
				run = quantity(float64(p.Nanoseconds)/float64(p.Runs), "ns")
			}
			t.add(n.Name, p.Name, quantity(size, "ns"), run, count(p.Runs), count(p.Packets))
			bar.Parts = append(bar.Parts, chart.Part{Name: p.Name, Size: size, Fill: fill, Tip: p.Name + " " + quantity(size, "ns")})
		}
		t.add(n.Name, "sum", bar.Value, "", "", "").Class = "total"
		c.Rows = append(c.Rows, bar)
	}
	t.Charts = []Chart{{SVG: c.SVG()}}
	return t
}

// footprint has what networks cost without traffic, the fastest ADD first.
func (v *view) footprint() Section {
	t := newTable(Everywhere, "Footprint", "", "Network", "CNI ADD P50", "CNI ADD P99", "CNI DEL P50",
		"BPF per one-way packet, cross-node", "agent RSS", "BPF maps", "idle CPU", "pods")
	notes := []string{
		"The cost of a network without traffic. CNI ADD is the time from the start of the plugin to its result. A dash means that there is nothing to measure.",
	}
	const probes = 3 // the column
	probed := slices.ContainsFunc(v.run.Footprints, func(f result.Footprint) bool { return len(f.ProbedAddMilliseconds) > 0 })
	if probed {
		t.Columns = slices.Insert(t.Columns, probes, "CNI ADD P50 with probes")
		notes = append(notes, "With probes, CNI ADD asks the wire whether another machine has the address of an IPPool.")
	}
	list := make([]result.Footprint, 0, len(v.run.Networks))
	for _, n := range v.run.Networks {
		f := find(v.run.Footprints, func(f result.Footprint) bool { return f.Network == n.Name })
		f.Network = n.Name
		list = append(list, f)
	}
	p50 := func(f result.Footprint) float64 {
		if len(f.AddMilliseconds) == 0 {
			return 1e300
		}
		return stats.Quantile(f.AddMilliseconds, 0.5)
	}
	slices.SortStableFunc(list, func(a, b result.Footprint) int { return cmp.Compare(p50(a), p50(b)) })
	c := chart.Rows{Log: true, Label: tickIn("ms"), Text: chart.Text{
		ID: "add", Title: "CNI ADD, from the start of the plugin to its result",
		Desc: "Each dot is one pod. The two bars of a row are P50 and P99. Logarithmic scale. The table has the same figures.",
	}}
	for _, f := range list {
		idle, pods, bpf := "", "", ""
		if f.IdleCPU != nil {
			idle = fmt.Sprintf("%.2f %%", *f.IdleCPU*100)
		}
		if f.Pods > 0 {
			pods = count(f.Pods)
		}
		for _, w := range v.run.Workloads {
			_, perPacket := v.programs(f.Network, w.Name, result.CrossNode)
			bpf = cmp.Or(bpf, positive(perPacket, "ns"))
		}
		row := []any{
			quantile(f.AddMilliseconds, 0.50), quantile(f.AddMilliseconds, 0.99), quantile(f.DelMilliseconds, 0.50), bpf,
			positive(float64(f.AgentRSSBytes), "B"), positive(float64(f.MapBytes), "B"), idle, pods,
		}
		if probed {
			row = slices.Insert(row, probes-1, any(quantile(f.ProbedAddMilliseconds, 0.50)))
		}
		t.addMeasured(f.Network, row...)
		if len(f.AddMilliseconds) == 0 {
			continue
		}
		bar := chart.Row{Label: f.Network, Value: quantile(f.AddMilliseconds, 0.5), Highlight: isBeeline(f.Network)}
		for _, ms := range f.AddMilliseconds {
			bar.Marks = append(bar.Marks, chart.Mark{At: ms, Shape: chart.Sample, Tip: quantity(ms, "ms")})
		}
		bar.Marks = append(bar.Marks, chart.Mark{At: p50(f), Shape: chart.Median}, chart.Mark{At: stats.Quantile(f.AddMilliseconds, 0.99), Shape: chart.Median})
		c.Rows = append(c.Rows, bar)
	}
	if len(c.Rows) > 0 {
		t.Notes = []string{"The P99 of fewer than 100 pods is the slowest of them."}
		t.Charts = []Chart{{SVG: c.SVG(), Caption: "CNI ADD: one dot is one pod, the two bars are P50 and P99. Logarithmic scale."}}
	}
	return Section{ID: "footprint", Title: "Footprint", Tables: []*Table{t}, Notes: notes}
}

// quantile renders the quantile q of times in milliseconds; without any there is no value.
func quantile(ms []float64, q float64) string {
	if len(ms) == 0 {
		return ""
	}
	return quantity(stats.Quantile(ms, q), "ms")
}
