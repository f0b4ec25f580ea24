package report

import (
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// nodePortRun has six rounds in which XDP forwards five times what iptables does.
func nodePortRun() *result.Run {
	rate := result.Workload{Name: "nodeport_saturation", Title: "saturation", Metric: result.Rate, Unit: "/s", Better: "higher"}
	left := result.Workload{Name: "nodeport_cpu_1m", Title: "left", Metric: result.CPULeft, Unit: "%", Better: "higher"}
	run := &result.Run{
		Workloads: []result.Workload{rate, left},
		NodePort: &result.NodePort{
			FrameBytes: 60, Flows: 1000, Services: 52, OfferedMax: 4e6, OneCoreMax: 3e6, Scale: 0.4,
			Routes: map[string]string{string(result.ForwarderCore): "live frames, counted at the wire"},
		},
		Networks: []result.Network{{Name: stats.Baseline}, {Name: atXDP}, {Name: iptables}},
	}
	for round := range 6 {
		run.Rounds = append(run.Rounds, result.Round{Index: round})
		for name, factor := range map[string]float64{stats.Baseline: 2, atXDP: 5, iptables: 1} {
			run.Samples = append(run.Samples,
				result.Sample{Round: round, Network: name, Workload: rate.Name, Path: result.CrossNode, Placement: result.ForwarderCore, Procs: 1,
					Values: map[string]float64{result.Rate: factor * float64(700e3+round)}},
				result.Sample{Round: round, Network: name, Workload: left.Name, Path: result.CrossNode, Placement: result.ForwarderCore, Procs: 1,
					Values: map[string]float64{result.CPULeft: 15 * factor}})
		}
	}
	return run
}

func TestNodePortBesidePublishedFigures(t *testing.T) {
	v := newView(nodePortRun())
	cells := map[string]string{}
	for _, table := range []*Table{v.saturation(), v.cpuLeft()} {
		for _, r := range table.Rows {
			for _, c := range r.Cells {
				cells[r.Name] += c.Text + " "
			}
		}
	}
	for name, want := range map[string]string{
		atXDP:          "5.000 – 4.762 4.348 75.0 % 87.0 % – 76.0 % – 57.0 % ",
		iptables:       "1.000 – 1.000 1.000 15.0 % 43.0 % – 4.00 % – 0.600 % ",
		stats.Baseline: "30.0 % – – – – – ",
	} {
		if cells[name] != want {
			t.Errorf("%s: %q, want %q", name, cells[name], want)
		}
	}
	if got := strings.Join(v.cpuLeft().Columns[1:], ", "); got != "400 k/s, 1 Mpps, 800 k/s, 2 Mpps, 1.60 M/s, 4 Mpps" {
		t.Errorf("columns %s", got)
	}
}

func TestNodePortsAreShown(t *testing.T) {
	all := shown(t, New(nodePortRun()), "live frames, counted at the wire", "× kube-proxy iptables", "4.76", "1 Mpps of the published study")
	if !strings.Contains(all["page"], `href="#nodeport"`) {
		t.Error("the page's contents lack the NodePorts")
	}
	if s := newView(&result.Run{}).nodePort(); len(s.Tables) > 0 {
		t.Errorf("a run without NodePorts has %+v", s)
	}
}
