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
	t := newTable(Everywhere, "Packets", "", "Property", "value")
	t.add("packets", fmt.Sprintf("UDP, %d bytes, %s flows; %d Services", n.FrameBytes, count(n.Flows), n.Services))
	t.add("bare veth pair", fmt.Sprintf("%s with a CPU for each end, %s on one core", quantity(n.OfferedMax, "/s"), quantity(n.OneCoreMax, "/s")))
	t.add("scale", scale)
	for _, p := range []result.Placement{result.ForwarderCore, result.OneCore} {
		t.addMeasured(string(p), n.Routes[string(p)])
	}
	s.Tables = []*Table{t, v.saturation(), v.cpuLeft()}
	return s
}

// saturation has rates at saturation as multiples of kube-proxy's in iptables mode, measured and published.
func (v *view) saturation() *Table {
	const workload, test = "nodeport_saturation", "NodePort UDP, 10 Mpps offered: forwarded"
	t := newTable(Everywhere, "Packets at saturation, × kube-proxy iptables", "", "Network", string(result.ForwarderCore), string(result.OneCore))
	for _, id := range nodePortStudies {
		t.Columns = append(t.Columns, "published: "+study(id).Name())
	}
	for _, name := range v.podNetworks() {
		var row []any
		for _, p := range []result.Placement{result.ForwarderCore, result.OneCore} {
			c := none
			if i := v.within(workload, name, workload, iptables, p); i.N > 0 {
				c.Text = ratio(&i.Median)
			}
			row = append(row, c)
		}
		for _, id := range nodePortStudies {
			c := none
			if a, b := publishedValue(id, test, publishedSystems[name]), publishedValue(id, test, publishedSystems[iptables]); a > 0 && b > 0 {
				quotient := a / b
				c.Text = ratio(&quotient)
			}
			row = append(row, c)
		}
		t.add(name, row...)
	}
	return t
}

// cpuLeft has the CPU share that is idle at the scaled rates beside that at the published rates.
func (v *view) cpuLeft() *Table {
	t := newTable(Everywhere, "CPU left: here, and published ("+study(nodePortStudies[0]).Name()+")", "", "Network")
	millions := []int{1, 2, 4}
	for _, m := range millions {
		t.Columns = append(t.Columns, quantity(v.run.NodePort.Scale*float64(m)*1e6, "/s"), fmt.Sprintf("%d Mpps", m))
	}
	for _, name := range slices.Concat([]string{stats.Baseline}, v.podNetworks()) {
		var row []any
		measured := false
		for _, m := range millions {
			here := ""
			if i := v.median(fmt.Sprintf("nodeport_cpu_%dm", m), name, result.ForwarderCore); i.N > 0 {
				here, measured = quantity(i.Median, "%"), true
			}
			there := publishedValue(nodePortStudies[0], fmt.Sprintf("NodePort UDP, %d Mpps forwarded: CPU left idle", m), publishedSystems[name])
			row = append(row, here, positive(there, "%"))
		}
		if measured {
			t.add(name, row...)
		}
	}
	return t
}

func study(id string) published.Study {
	return find(published.Studies(), func(s published.Study) bool { return s.ID == id })
}

// publishedValue is a figure of a study, 0 if the study does not have it.
func publishedValue(id, test, system string) float64 {
	return find(study(id).Figures, func(f published.Figure) bool { return f.Test == test && f.System == system }).Value
}
