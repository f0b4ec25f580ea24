package report

import (
	"fmt"
	"html/template"
	"slices"

	"github.com/beeline-cni/beeline/lab/report/chart"
)

// programSection is what BPF programs cost for each packet.
type programSection struct {
	Names     []programName
	Workloads []programWorkload
}

type programName struct {
	Name   string
	Symbol template.HTML
}

// programWorkload compares the contenders under one workload on one path.
type programWorkload struct {
	Title, Path string
	Chart       template.HTML
	Rows        []programRow
	chart       chart.Stack
}

type programRow struct {
	Contender, Program, PerPacket, PerRun, Runs, Packets string
	Total                                                bool
}

func programSections(v *view) *programSection {
	totals := programTotals(v.run)
	if len(totals) == 0 {
		return nil
	}
	s := &programSection{}
	for _, t := range totals {
		w := s.workload(v.workload(figureKey{workload: t.workload}).Title, string(t.path))
		bar := chart.StackRow{Label: t.contender, Value: nanos(t.perPacket), Highlight: t.contender == subject}
		for _, p := range t.programs {
			bar.Parts = append(bar.Parts, chart.Part{Name: p.name, Size: p.perPacket, Fill: s.fill(p.name), Tip: p.name + " " + nanos(p.perPacket)})
			w.Rows = append(w.Rows, programRow{t.contender, p.name, nanos(p.perPacket), nanos(p.perRun), group(fmt.Sprint(p.runs)), group(fmt.Sprint(p.packets)), false})
		}
		w.Rows = append(w.Rows, programRow{Contender: t.contender, Program: "all together", PerPacket: nanos(t.perPacket), Total: true})
		w.chart.Rows = append(w.chart.Rows, bar)
	}
	for i := range s.Workloads {
		s.Workloads[i].Chart = s.Workloads[i].chart.SVG()
	}
	return s
}

// workload finds or makes the comparison of one workload and path.
func (s *programSection) workload(title, path string) *programWorkload {
	i := slices.IndexFunc(s.Workloads, func(w programWorkload) bool { return w.Title == title && w.Path == path })
	if i < 0 {
		i = len(s.Workloads)
		s.Workloads = append(s.Workloads, programWorkload{Title: title, Path: path, chart: chart.Stack{
			Unit: "ns per one-way packet", Text: chart.Text{
				ID: fmt.Sprintf("bpf-%d", i), Title: "BPF run time per one-way packet: " + title + ", " + path,
				Desc: "One bar for each contender; segments are programs, in the order a packet meets them. The table has the same figures.",
			},
		}})
	}
	return &s.Workloads[i]
}

// fill gives each program one shade throughout the section.
func (s *programSection) fill(name string) int {
	i := slices.IndexFunc(s.Names, func(n programName) bool { return n.Name == name })
	if i < 0 {
		i = len(s.Names)
		s.Names = append(s.Names, programName{name, chart.FillSymbol(i)})
	}
	return i
}
