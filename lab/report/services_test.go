package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// servicesRun makes a run of the services suite from invented figures: with more Services new connections cost more with
// kube-proxy and not with Beeline, and Beeline misses a target.
func servicesRun() *result.Run {
	rr := result.Workload{Name: "tcp_rr", Title: "TCP_RR", Tool: "netperf", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"}
	crr := rr
	crr.Name, crr.Title = "tcp_crr", "TCP_CRR"
	to := func(w result.Workload, name string, services int) result.Workload {
		w.Of, w.Target, w.Services, w.Name = w.Name, result.ToClusterIP, services, name
		return w
	}
	run := &result.Run{
		Schema:    result.SchemaVersion,
		Settings:  result.Settings{Mode: "quick", Suite: "services", Placement: []string{string(result.OneCore)}},
		Workloads: []result.Workload{rr, to(rr, "tcp_rr_clusterip_1", 1), crr, to(crr, "tcp_crr_clusterip_1", 1), to(crr, "tcp_crr_clusterip_10000", 10000)},
		Networks: []result.Network{
			{Name: stats.Baseline}, {Name: atSocket}, {Name: iptables}, {Name: "kube-proxy-ipvs", Unsupported: "not on this kernel: IPVS (CONFIG_IP_VS)"},
		},
		Services: &result.Services{
			Convergence: []result.ServiceConvergence{
				{Network: atSocket, Change: result.ServiceCreated, Services: 10000, Backends: 10, Milliseconds: []float64{3, 4, 49}},
				{Network: iptables, Change: result.BackendAdded, Services: 10000, Backends: 1, Milliseconds: []float64{}, Error: "no connection reached it in time"},
			},
			Syncs: []result.Sync{
				{Network: atSocket, Services: 10000, Backends: 10, Seconds: []float64{2.1, 3.5, 2.2}, RSSBytes: 90e6, MapBytes: 20e6},
				{Network: iptables, Services: 10000, Backends: 10, Seconds: []float64{}, Error: "not within 1m0s"},
			},
		},
	}
	share := map[string][]float64{stats.Baseline: {1, 1, 1, 1, 1}, atSocket: {0.9, 0.895, 0.9, 0.85, 0.845}, iptables: {0.8, 0.7, 0.75, 0.6, 0.06}}
	for round := range 7 {
		run.Rounds = append(run.Rounds, result.Round{Index: round})
		for name, of := range share {
			for i, w := range run.Workloads {
				run.Samples = append(run.Samples, result.Sample{
					Round: round, Network: name, Workload: w.Name, Path: result.CrossNode, Placement: result.OneCore, Procs: 1, Seconds: 1,
					Values: map[string]float64{result.Rate: 10000 * of[i] * (1 + 0.001*float64(round))},
				})
			}
		}
	}
	run.Summary = stats.Summarize(run)
	return run
}

func TestServiceTargets(t *testing.T) {
	var got []string
	for _, r := range targetRows(servicesRun()) {
		got = append(got, r.target+": "+r.required+", "+r.measured+", "+r.result)
	}
	want := []string{
		"ClusterIP against pod IP, TCP_RR: ≥ 0.98, 0.994, met",
		"ClusterIP against pod IP, TCP_CRR: ≥ 0.98, 0.944, missed",
		"ClusterIP against pod IP, tcp_stream_128k: ≥ 0.98, –, not measured",
		"ClusterIP, TCP_CRR with 10,000 Services against 1: ≥ 0.97, 0.994, met",
		"Service with 10 backends created among 10,000, until traffic follows, P99: ≤ 50.0 ms, 49.0 ms, met",
		"10,000 Services × 10 backends programmed from an empty start, slowest: ≤ 3.00 s, 3.50 s, missed",
		"Resident memory of the agent with 10,000 Services (MB of 10⁶ bytes): ≤ 120 MB, 90.0 MB, met",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A start that failed, or a change without effect, meets no target by the values before it.
func TestBrokenOffServicesMeetNoTarget(t *testing.T) {
	run := servicesRun()
	run.Services.Convergence[0].Error = "no connection reached it in time"
	run.Services.Syncs[0].Seconds, run.Services.Syncs[0].Error = []float64{2.1}, "not within 1m0s"
	wantOutcomes(t, run, map[string]string{
		"Service with 10 backends created among 10,000, until traffic follows, P99": "not measured, 49.0 ms, n 3, P50 4.00 ms, max 49.0 ms; broke off",
		"10,000 Services × 10 backends programmed from an empty start, slowest":     "not measured, 2.10 s, n 1, P50 2.10 s, max 2.10 s; broke off",
	})
}

func TestNodePortTargets(t *testing.T) {
	saturation := result.Workload{Name: "nodeport_saturation", Title: "saturation", Metric: result.Rate, Unit: "/s", Better: "higher"}
	run := &result.Run{
		NodePort: &result.NodePort{}, Workloads: []result.Workload{saturation},
		Networks: []result.Network{{Name: stats.Baseline}, {Name: atXDP}, {Name: atTC}, {Name: iptables}},
	}
	for name, rate := range map[string]float64{stats.Baseline: 900e3, atXDP: 800e3, atTC: 390e3, iptables: 200e3} {
		for _, p := range []result.Placement{result.ForwarderCore, result.OneCore} {
			run.Samples = append(run.Samples, result.Sample{
				Network: name, Workload: saturation.Name, Path: result.CrossNode, Placement: p, Procs: 1, Values: map[string]float64{result.Rate: rate},
			})
		}
	}
	var got []string
	for _, r := range targetRows(run) {
		got = append(got, r.measured+" "+r.result)
	}
	want := []string{"4.000 met, undecided", "2.051 met, undecided", "1.950 met, undecided", "390 k/s missed, undecided", "800 k/s met, undecided", "– not measured"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A line of the curve has a gap where a number of Services was not measured.
func TestCurveOfServicesHasGaps(t *testing.T) {
	run := servicesRun()
	more := result.Workload{}
	for _, w := range run.Workloads {
		if w.Name == "tcp_crr_clusterip_10000" {
			more = w
		}
	}
	more.Name, more.Services = "tcp_crr_clusterip_20000", 20000
	run.Workloads = append(run.Workloads, more)
	for _, s := range run.Samples {
		if s.Workload == "tcp_crr_clusterip_10000" {
			s.Workload = more.Name
			run.Samples = append(run.Samples, s)
		}
	}
	joined := func() int {
		v := newView(run)
		for _, w := range run.Workloads {
			if w.Name == "tcp_crr" {
				return strings.Count(string(v.curve(w).Charts[0].SVG), "stroke-dasharray")
			}
		}
		return 0
	}
	whole, gaps := joined(), 0
	for i := range run.Samples {
		if s := &run.Samples[i]; s.Workload == "tcp_crr_clusterip_10000" && s.Network == iptables {
			s.Values, s.Error = nil, "timed out"
			gaps = 2
		}
	}
	if got := joined(); gaps == 0 || got != whole-gaps {
		t.Errorf("%d lines join the points, of %d without a gap", got, whole)
	}
}

func TestServicesAreShown(t *testing.T) {
	run := servicesRun()
	all := shown(t, New(run),
		"Targets", "missed", "Ratio of ClusterIP to pod IP", "by the number of Services", "600", "0.944", "backend added",
		"49.0 ms", "2.20 s (up to 3.50 s)", "not on this kernel: IPVS",
	)
	for name, text := range all {
		for _, want := range []string{"no connection reached it", "not within 1m0s"} {
			if words := strings.Join(strings.Fields(text), " "); name != "text" && !strings.Contains(words, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	if !strings.Contains(all["page"], `id="services-tcp_crr-t"`) {
		t.Error("the page lacks the curve")
	}
	run.Services, run.Settings.Suite = nil, ""
	if rows := targetRows(run); rows != nil {
		t.Errorf("a run of the network suite has %d targets", len(rows))
	}
}

func TestTitleNamesTheSuite(t *testing.T) {
	for suite, want := range map[string]string{
		"": "What container networking costs", "services": "What Services cost", "nodeport": "What NodePorts cost", "policy": "What NetworkPolicies cost", "encryption": "What encryption costs",
	} {
		run := &result.Run{Settings: result.Settings{Suite: suite}}
		if got := headline(run); got != want+" on this machine" {
			t.Errorf("suite %q: %q, want %q", suite, got, want)
		}
	}
}
