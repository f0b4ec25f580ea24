package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/beeline-cni/beeline/lab/report/published"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// nodePortSection is what the NodePort bench says beside its figures.
type nodePortSection struct {
	// Facts are how packets were made and what the published columns mean here.
	Facts []fact
	// Saturation and CPU set the figures beside the published ones; nil where there are none.
	Saturation, CPU *grid
}

// scaleOf says what the published rates are here, and which of the two bounds decided it.
func scaleOf(n *result.NodePort) string {
	text := fmt.Sprintf("1 Mpps of the published study, where 10 Mpps were offered, is %s here", quantity(n.Scale*1e6, "/s"))
	if n.CountingMax > 0 {
		text += fmt.Sprintf("; beside the counter the generator makes at least %s with every contender", quantity(n.CountingMax, "/s"))
	}
	return text
}

// Grids are those that there are.
func (s *nodePortSection) Grids() []*grid {
	return slices.DeleteFunc([]*grid{s.Saturation, s.CPU}, func(g *grid) bool { return g == nil })
}

// studiesOfNodePorts are those whose figures stand beside this run's; the CPU figures are of the first.
var studiesOfNodePorts = []string{"nodeport-2020", "nodeport-spiderpool"}

// publishedSystems names the systems of the studies by the contenders that they are set beside.
var publishedSystems = map[string]string{
	atXDP: "eBPF at XDP", atTC: "eBPF at tc", iptables: "kube-proxy iptables", "kube-proxy-ipvs": "kube-proxy ipvs",
}

func (v *view) nodePort() *nodePortSection {
	n := v.run.NodePort
	if n == nil {
		return nil
	}
	s := &nodePortSection{Facts: []fact{
		{"packets", fmt.Sprintf("UDP, %d bytes, %s flows; %d Services", n.FrameBytes, group(fmt.Sprint(n.Flows)), n.Services)},
		{"bare veth pair", fmt.Sprintf("%s with a CPU for each end, %s on one core", quantity(n.OfferedMax, "/s"), quantity(n.OneCoreMax, "/s"))},
		{"scale", scaleOf(n)},
	}}
	for _, p := range []result.Placement{result.ForwarderCore, result.OneCore} {
		if way := n.Routes[string(p)]; way != "" {
			s.Facts = append(s.Facts, fact{string(p), way})
		}
	}
	s.Saturation, s.CPU = v.saturationBeside(), v.cpuBeside()
	return s
}

// saturationBeside sets rates at saturation, as multiples of kube-proxy's in iptables mode, beside the published ones.
func (v *view) saturationBeside() *grid {
	const workload = "nodeport_saturation"
	g := &grid{Title: "Packets at saturation, × kube-proxy iptables"}
	placements := []result.Placement{result.ForwarderCore, result.OneCore}
	for _, p := range placements {
		g.Columns = append(g.Columns, string(p))
	}
	g.Columns = append(g.Columns, studyColumns()...)
	for _, name := range v.servingContenders() {
		row := gridRow{Name: name, Highlight: strings.HasPrefix(name, subject)}
		for _, p := range placements {
			i, ok := v.within(workload, name, workload, iptables, p)
			row.Cells = append(row.Cells, ratioOrDash(i, ok))
		}
		for _, id := range studiesOfNodePorts {
			row.Cells = append(row.Cells, publishedRatio(id, "NodePort UDP, 10 Mpps offered: forwarded", publishedSystems[name], publishedSystems[iptables]))
		}
		g.Rows = append(g.Rows, row)
	}
	if len(g.Rows) == 0 {
		return nil
	}
	return g
}

// cpuBeside sets what is left of the CPU at the scaled rates beside what was left at the published ones.
func (v *view) cpuBeside() *grid {
	g := &grid{Title: "CPU left: here, and published (" + studyColumns()[0] + ")"}
	millions := []int{1, 2, 4}
	for _, m := range millions {
		g.Columns = append(g.Columns, quantity(v.run.NodePort.Scale*float64(m)*1e6, "/s"), fmt.Sprintf("%d Mpps", m))
	}
	for _, name := range slices.Concat([]string{baseline}, v.servingContenders()) {
		row := gridRow{Name: name, Highlight: strings.HasPrefix(name, subject)}
		measured := false
		for _, m := range millions {
			cell := dash
			if i, ok := v.median(fmt.Sprintf("nodeport_cpu_%dm", m), name, result.ForwarderCore); ok {
				cell, measured = quantity(i.Median, "%"), true
			}
			row.Cells = append(row.Cells, cell, publishedCPU(m, publishedSystems[name]))
		}
		if measured {
			g.Rows = append(g.Rows, row)
		}
	}
	if len(g.Rows) == 0 {
		return nil
	}
	return g
}

func studyColumns() []string {
	var names []string
	for _, id := range studiesOfNodePorts {
		s := study(id)
		names = append(names, studyName(s))
	}
	return names
}

func study(id string) published.Study {
	for _, s := range published.Studies() {
		if s.ID == id {
			return s
		}
	}
	return published.Study{}
}

func ratioOrDash(i stats.Interval, ok bool) string {
	if !ok {
		return dash
	}
	return ratio(&i.Median)
}

// valueOfStudy is a figure of a study.
func valueOfStudy(id, test, system string) (float64, bool) {
	for _, f := range study(id).Figures {
		if f.Test == test && f.System == system {
			return f.Value, true
		}
	}
	return 0, false
}

func publishedRatio(id, test, system, to string) string {
	a, ok := valueOfStudy(id, test, system)
	b, there := valueOfStudy(id, test, to)
	if !ok || !there || b == 0 {
		return dash
	}
	quotient := a / b
	return ratio(&quotient)
}

func publishedCPU(millions int, system string) string {
	value, ok := valueOfStudy(studiesOfNodePorts[0], fmt.Sprintf("NodePort UDP, %d Mpps forwarded: CPU left idle", millions), system)
	if !ok {
		return dash
	}
	return quantity(value, "%")
}

// nodePort prints the section.
func (t *terminal) nodePort(v *view) {
	s := v.nodePort()
	if s == nil {
		return
	}
	t.printf("")
	t.printf("How packets were made, and what is beside them")
	for _, f := range s.Facts {
		t.wrapped("  "+pad(f.Name, 15), f.Value)
	}
	for _, g := range s.Grids() {
		t.grid(*g)
	}
}

// nodePort writes the same as tables for a README.
func (m *markdown) nodePort(v *view) {
	s := v.nodePort()
	if s == nil {
		return
	}
	m.printf("")
	for _, f := range s.Facts {
		m.printf("* %s: %s", f.Name, f.Value)
	}
	for _, g := range s.Grids() {
		m.grid(*g)
	}
}
