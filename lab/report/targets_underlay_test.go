package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

func TestUnderlayTargets(t *testing.T) {
	run := &result.Run{
		Schema: result.SchemaVersion, Settings: result.Settings{Mode: "quick", Placement: []string{string(result.OneCore)}},
		Workloads: []result.Workload{
			{Name: "tcp_rr", Title: "TCP_RR", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"},
			{Name: "tcp_crr", Title: "TCP_CRR", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"},
		},
		Networks: []result.Network{{Name: stats.Baseline}, {Name: beeline}, {Name: plainMacvlan}, {Name: onMacvlan}, {Name: onRouted}, {Name: sameNode}},
		Footprints: []result.Footprint{
			{Network: onMacvlan, AddMilliseconds: []float64{30, 41, 50}, DelMilliseconds: []float64{20}, ProbedAddMilliseconds: []float64{330, 340, 360}},
		},
	}
	cross := map[string]float64{stats.Baseline: 1, beeline: 0.9, plainMacvlan: 0.97, onMacvlan: 0.96, onRouted: 0.88, sameNode: 1.2}
	for i := range 7 {
		run.Rounds = append(run.Rounds, result.Round{Index: i})
		for name, share := range cross {
			for _, w := range run.Workloads {
				run.Samples = append(run.Samples, result.Sample{
					Round: i, Network: name, Workload: w.Name, Path: result.CrossNode, Placement: result.OneCore, Procs: 1, Seconds: 1,
					Values: map[string]float64{result.Rate: 10000 * share * (1 + 0.001*float64(i))},
				})
			}
			run.Samples = append(run.Samples, result.Sample{
				Round: i, Network: name, Workload: "tcp_rr", Path: result.SameNode, Placement: result.OneCore, Procs: 1, Seconds: 1,
				Values: map[string]float64{result.Rate: 10000 * share * share},
			})
		}
	}
	run.Summary = stats.Summarize(run)
	want := strings.Split(`macvlan pods against node, tcp_stream_128k: ≥ 0.95, –, not measured
macvlan pods against node, TCP_RR: ≥ 0.95, 0.960, met
macvlan pods against node, TCP_CRR: ≥ 0.93, 0.960, met
macvlan pods against the plain macvlan plugin, tcp_stream_128k: ≥ 0.97, –, not measured
macvlan pods against the plain macvlan plugin, TCP_RR: ≥ 0.97, 0.990, met
macvlan pods against the plain macvlan plugin, TCP_CRR: ≥ 0.97, 0.990, met
macvlan pods of one node against the plain macvlan plugin, TCP_RR: ≥ 0.94, 0.979, met
Routed underlay against pods of the cluster range, tcp_stream_128k: ≥ 0.99, –, not measured
Routed underlay against pods of the cluster range, TCP_RR: ≥ 0.99, 0.978, missed
Routed underlay against pods of the cluster range, TCP_CRR: ≥ 0.99, 0.978, missed
Same-node sockets against packets, TCP_RR: ≥ 1.5, 1.778, met
Same-node sockets against packets, tcp_rr_4k: ≥ 1.9, –, not measured
beeline-macvlan: CNI ADD, P50: ≤ 40.0 ms, 41.0 ms, missed
beeline-macvlan: CNI ADD with probes, P50: ≤ 350 ms, 340 ms, met
beeline-routed: CNI ADD, P50: ≤ 40.0 ms, –, not measured
beeline-routed: CNI ADD with probes, P50: ≤ 350 ms, –, not measured`, "\n")
	var got []string
	for _, r := range targetRows(run) {
		got = append(got, r.target+": "+r.required+", "+r.measured+", "+r.result)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	shown(t, New(run), "CNI ADD P50 with probes", "340 ms")
	run.Networks = run.Networks[:3]
	if rows := targetRows(run); len(rows) != 0 {
		t.Errorf("without networks with IPPools there are the targets %v", rows)
	}
}

func TestMacvlanServiceTargets(t *testing.T) {
	run := servicesRun()
	run.Networks = append(run.Networks, result.Network{Name: onMacvlan})
	for _, s := range run.Samples {
		if s.Network == atSocket {
			s.Network = onMacvlan
			run.Samples = append(run.Samples, s)
		}
	}
	run.Summary = stats.Summarize(run)
	found := 0
	for _, r := range targetRows(run) {
		if strings.HasPrefix(r.target, "ClusterIP against pod IP, macvlan pods, TCP_") && r.required == "≥ 0.98" {
			found++
			if want := map[bool]string{true: "0.994", false: "0.944"}[strings.HasSuffix(r.target, "TCP_RR")]; r.measured != want {
				t.Errorf("%+v", r)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d targets of macvlan pods", found)
	}
}
