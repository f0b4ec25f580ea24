package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// ofServices makes a run of the Service bench, of invented figures: kube-proxy's new connections cost more with every
// Service, Beeline's do not, and Beeline misses one promise.
func ofServices() *result.Run {
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
			{Name: baseline}, {Name: atSocket}, {Name: iptables}, {Name: "kube-proxy-ipvs", Unsupported: "not on this kernel: IPVS (CONFIG_IP_VS)"},
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
	share := map[string][]float64{baseline: {1, 1, 1, 1, 1}, atSocket: {0.9, 0.895, 0.9, 0.85, 0.845}, iptables: {0.8, 0.7, 0.75, 0.6, 0.06}}
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

func TestPromisesOfServices(t *testing.T) {
	var got []string
	for _, r := range newView(ofServices()).promises() {
		got = append(got, r.What+": "+r.Wanted+", "+r.Got+", "+r.Kept)
	}
	want := []string{
		"ClusterIP against pod IP, TCP_RR: ≥ 0.98, 0.994, kept",
		"ClusterIP against pod IP, TCP_CRR: ≥ 0.98, 0.944, not kept",
		"ClusterIP against pod IP, tcp_stream_128k: ≥ 0.98, –, not measured",
		"ClusterIP, TCP_CRR with 10,000 Services against 1: ≥ 0.97, 0.994, kept",
		"Service with 10 backends created among 10,000, until traffic follows, P99: ≤ 50.0 ms, 49.0 ms, kept",
		"10,000 Services × 10 backends from nothing until they work, the slowest start: ≤ 3.00 s, 3.50 s, not kept",
		"Resident memory of the agent with them, in MB of 10⁶ bytes: ≤ 120 MB, 90.0 MB, kept",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A start that does not come to its end, and a change that is not followed, keep no promise by those before them.
func TestBrokenOffServicesKeepNoPromise(t *testing.T) {
	run := ofServices()
	run.Services.Convergence[0].Error = "no connection reached it in time"
	run.Services.Syncs[0].Seconds, run.Services.Syncs[0].Error = []float64{2.1}, "not within 1m0s"
	got := map[string]string{}
	for _, r := range newView(run).promises() {
		got[r.What] = r.Kept + ", " + r.Got + ", " + r.Interval
	}
	for what, want := range map[string]string{
		"Service with 10 backends created among 10,000, until traffic follows, P99":     "not measured, 49.0 ms, broke off",
		"10,000 Services × 10 backends from nothing until they work, the slowest start": "not measured, 2.10 s, broke off",
	} {
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
	}
}

func TestPromisesOfNodePorts(t *testing.T) {
	saturation := result.Workload{Name: "nodeport_saturation", Title: "saturation", Metric: result.Rate, Unit: "/s", Better: "higher"}
	run := &result.Run{NodePort: &result.NodePort{}, Workloads: []result.Workload{saturation}}
	for name, rate := range map[string]float64{baseline: 900e3, atXDP: 800e3, atTC: 390e3, iptables: 200e3} {
		for _, p := range []result.Placement{result.ForwarderCore, result.OneCore} {
			run.Samples = append(run.Samples, result.Sample{
				Network: name, Workload: saturation.Name, Path: result.CrossNode, Placement: p, Procs: 1, Values: map[string]float64{result.Rate: rate},
			})
		}
	}
	var got []string
	for _, r := range newView(run).promises() {
		got = append(got, r.Got+" "+r.Kept)
	}
	want := []string{"4.000 kept", "2.051 kept", "1.950 kept", "390 k/s not kept", "800 k/s kept", "– not measured"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A line of the curve has a gap where a number of Services was not measured.
func TestCurveOfServicesHasGaps(t *testing.T) {
	run := ofServices()
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
				return strings.Count(string(v.curve(w).Chart), "stroke-dasharray")
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
	run := ofServices()
	var table, markdown, page bytes.Buffer
	for _, err := range []error{Table(&table, run), Markdown(&markdown, run), HTML(&page, run)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"table": table.String(), "markdown": markdown.String(), "page": page.String()} {
		for _, want := range []string{
			"What is promised", "not kept", "ClusterIP against pod IP", "by the number of Services", "600", "0.944", "backend added", "no connection reached it",
			"not within 1m0s", "49.0 ms", "2.20 s (up to 3.50 s)", "not on this kernel: IPVS",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	checkPage(t, page.Bytes())
	if !strings.Contains(page.String(), `id="services-tcp_crr-t"`) {
		t.Error("the page lacks the curve")
	}
	if f := newView(run).findings(); len(f) != 1 || !strings.HasPrefix(f[0].Lead, "4 of 6 promises") || !strings.Contains(f[0].Detail, "1 of 7 are not measured") {
		t.Errorf("%+v", f)
	}
	run.Services, run.Settings.Suite = nil, ""
	if rows := newView(run).promises(); rows != nil {
		t.Errorf("a run of the network has %d promises", len(rows))
	}
}
