package report

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/lab/report/published"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// nodePortStudies are the studies whose figures stand beside those of the run. The CPU figures are of the first.
var nodePortStudies = []string{"nodeport-2020", "nodeport-spiderpool"}

// publishedSystems maps a network to the system of the studies that it compares with.
var publishedSystems = map[string]string{
	atXDP: "eBPF at XDP", atTC: "eBPF at tc", iptables: "kube-proxy iptables", "kube-proxy-ipvs": "kube-proxy ipvs",
}

// nodePort has how packets were made, and the figures of the suite beside published ones.
func (v *view) nodePort() Section {
	s := Section{ID: "nodeport", Title: "NodePorts", Notes: []string{"Published figures come from other machines."}}
	n := v.run.NodePort
	if n == nil {
		return s
	}
	scale := fmt.Sprintf("1 Mpps of the published study, which offered 10 Mpps, is %s here", quantity(n.Scale*1e6, "/s"))
	if n.CountingMax > 0 {
		scale += fmt.Sprintf("; beside the counter the generator makes at least %s with every network", quantity(n.CountingMax, "/s"))
	}
	t := &Table{Title: "Packets", Columns: []Column{texts("Property"), texts("value")}}
	t.add("packets", text(fmt.Sprintf("UDP, %d bytes, %s flows; %d Services", n.FrameBytes, count(n.Flows), n.Services)))
	t.add("bare veth pair", text(fmt.Sprintf("%s with a CPU for each end, %s on one core", quantity(n.OfferedMax, "/s"), quantity(n.OneCoreMax, "/s"))))
	t.add("scale", text(scale))
	for _, p := range []result.Placement{result.ForwarderCore, result.OneCore} {
		if route := n.Routes[string(p)]; route != "" {
			t.add(string(p), text(route))
		}
	}
	s.Tables = []*Table{t, v.saturation(), v.cpuLeft()}
	return s
}

// saturation has rates at saturation as multiples of kube-proxy's in iptables mode, measured and published.
func (v *view) saturation() *Table {
	const workload, test = "nodeport_saturation", "NodePort UDP, 10 Mpps offered: forwarded"
	placements := []result.Placement{result.ForwarderCore, result.OneCore}
	t := &Table{Title: "Packets at saturation, × kube-proxy iptables", Columns: columns("Network")}
	for _, p := range placements {
		t.Columns = append(t.Columns, Column{Title: string(p)})
	}
	for _, id := range nodePortStudies {
		t.Columns = append(t.Columns, Column{Title: "published: " + studyName(study(id))})
	}
	for _, name := range v.podNetworks() {
		var row []Cell
		for _, p := range placements {
			c := ratioCell(v.within(workload, name, workload, iptables, p))
			c.Interval, c.Mark = "", ""
			row = append(row, c)
		}
		for _, id := range nodePortStudies {
			c := none
			if a, b := publishedValue(id, test, publishedSystems[name]), publishedValue(id, test, publishedSystems[iptables]); a > 0 && b > 0 {
				quotient := a / b
				c = text(ratio(&quotient))
			}
			row = append(row, c)
		}
		t.add(name, row...)
	}
	return t
}

// cpuLeft has the CPU share that is idle at the scaled rates beside that at the published rates.
func (v *view) cpuLeft() *Table {
	t := &Table{Title: "CPU left: here, and published (" + studyName(study(nodePortStudies[0])) + ")", Columns: columns("Network")}
	millions := []int{1, 2, 4}
	for _, m := range millions {
		t.Columns = append(t.Columns, Column{Title: quantity(v.run.NodePort.Scale*float64(m)*1e6, "/s")}, Column{Title: fmt.Sprintf("%d Mpps", m)})
	}
	for _, name := range slices.Concat([]string{stats.Baseline}, v.podNetworks()) {
		var row []Cell
		measured := false
		for _, m := range millions {
			here, there := none, none
			if i := v.median(fmt.Sprintf("nodeport_cpu_%dm", m), name, result.ForwarderCore); i.N > 0 {
				here, measured = text(quantity(i.Median, "%")), true
			}
			test := fmt.Sprintf("NodePort UDP, %d Mpps forwarded: CPU left idle", m)
			if value := publishedValue(nodePortStudies[0], test, publishedSystems[name]); value > 0 {
				there = text(quantity(value, "%"))
			}
			row = append(row, here, there)
		}
		if measured {
			t.add(name, row...)
		}
	}
	return t
}

func study(id string) published.Study {
	for _, s := range published.Studies() {
		if s.ID == id {
			return s
		}
	}
	return published.Study{}
}

// publishedValue is a figure of a study, 0 if the study does not have it.
func publishedValue(id, test, system string) float64 {
	for _, f := range study(id).Figures {
		if f.Test == test && f.System == system {
			return f.Value
		}
	}
	return 0
}
