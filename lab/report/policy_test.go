package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// policyRun makes a run of the policy suite from invented figures: new connections cost a little more with policies, flows
// cost too much, and one network allows a connection that it must block.
func policyRun() *result.Run {
	run := &result.Run{
		Schema:   result.SchemaVersion,
		Settings: result.Settings{Mode: "quick", Suite: "policy", Placement: []string{string(result.OneCore)}},
		Workloads: []result.Workload{
			{Name: "tcp_rr", Title: "TCP_RR", Tool: "netperf", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"},
			{Name: "tcp_crr", Title: "TCP_CRR", Tool: "netperf", Metric: result.Rate, Unit: "/s", Better: "higher", Work: "transaction"},
		},
	}
	shares := []struct {
		name    string
		rr, crr float64
	}{
		{stats.Baseline, 1, 1}, {beeline, 0.9, 0.9}, {policyElsewhere, 0.9, 0.899}, {withPolicy, 0.89, 0.82}, {blocksOne, 0.89, 0.82}, {blocksMany, 0.888, 0.81},
		{allFlows, 0.89, 0.8}, {flowsOff, 0.89, 0.83}, {"ptp", 0.6, 0.5}, {"ptp-iptables-policy", 0.58, 0.4},
	}
	for _, s := range shares {
		run.Networks = append(run.Networks, result.Network{Name: s.name})
	}
	for round := range 7 {
		run.Rounds = append(run.Rounds, result.Round{Index: round})
		for _, s := range shares {
			for w, share := range map[string]float64{"tcp_rr": s.rr, "tcp_crr": s.crr} {
				run.Samples = append(run.Samples, result.Sample{
					Round: round, Network: s.name, Workload: w, Path: result.CrossNode, Placement: result.OneCore, Procs: 1, Seconds: 1,
					Values: map[string]float64{result.Rate: 10000 * share * (1 + 0.001*float64(round))},
				})
			}
		}
	}
	connection := func(allowed, connected bool) result.Connection {
		return result.Connection{
			Direction: result.Ingress, Rule: "block", Case: "excepted", Path: result.SameNode, Protocol: "UDP", From: "stranger", To: "block-near", Port: 7100,
			Allowed: allowed, Connected: connected,
		}
	}
	run.Policy = &result.Policy{
		Policies: 1000, Pods: 1000, IPBlocks: 100000,
		Connectivity: []result.Connectivity{
			{Network: beeline, Connections: []result.Connection{connection(false, false)}},
			{Network: withPolicy, Connections: []result.Connection{connection(false, true)}},
			{Network: "ptp-iptables-policy", Error: "no rules"},
		},
		Tables: []result.PolicyTables{
			{Network: blocksMany, Policies: 10, LocalPods: 1, Selected: 1, Sets: 2, Addresses: 50003, Prefixes: 50000, Entries: 22, Ports: 4, Bytes: 9e6},
		},
		Convergence: []result.PolicyConvergence{
			{Network: policyMany, Change: result.LabelDenies, Policies: 1000, Pods: 1000, Milliseconds: []float64{3, 4, 49}},
			{Network: policyMany, Change: result.PolicyAdded, Policies: 1000, Pods: 1000, Milliseconds: []float64{3, 4, 149}, Error: "interrupted"},
		},
		Compiled: []result.PolicyCompile{{
			Network: policyMany, Policies: 1000, Pods: 1000, LocalPods: 100, FullMilliseconds: []float64{120, 210}, CompilerMilliseconds: []float64{20, 40}, ChangeMilliseconds: []float64{11}, TableBytes: 33e6, Source: "the agents",
		}},
	}
	run.Summary = stats.Summarize(run)
	return run
}

func TestPolicyTargets(t *testing.T) {
	var got []string
	for _, r := range targetRows(policyRun()) {
		if r.result == notMeasured {
			continue
		}
		detail := ""
		if strings.HasPrefix(r.required, "≤") && r.interval != dash {
			detail = " (" + r.interval + ")"
		}
		got = append(got, r.target+": "+r.required+", "+r.measured+detail+", "+r.result)
	}
	want := []string{
		"No policy on the pod, policies elsewhere, TCP_RR: ≥ 0.99, 1.000, met",
		"No policy on the pod, policies elsewhere, TCP_CRR: ≥ 0.99, 0.999, met",
		"Allowing policies on both pods, TCP_RR: ≥ 0.97, 0.989, met",
		"Allowing policies on both pods, TCP_CRR: ≥ 0.93, 0.911, missed",
		"100,000 ipBlocks against 1, TCP_RR: ≥ 0.98, 0.998, met",
		"100,000 ipBlocks against 1, TCP_CRR: ≥ 0.98, 0.988, met",
		"Flows on, by default, with policies, TCP_RR: ≥ 0.97, 1.000, met",
		"Flows on, by default, with policies, TCP_CRR: ≥ 0.97, 0.988, met",
		"Flows of all pods, without policies, TCP_RR: ≥ 0.97, 0.989, met",
		"Flows of all pods, without policies, TCP_CRR: ≥ 0.97, 0.889, missed",
		"1,000 policies × 1,000 pods (100 local) in the kernel from an empty start, slowest: ≤ 1.00 s, 210 ms (n 2, P50 120 ms, max 210 ms), met",
		"One label change among them in the kernel, slowest: ≤ 100 ms, 11.0 ms (n 1, P50 11.0 ms, max 11.0 ms), met",
		"Policy tables with them (MB of 10⁶ bytes): ≤ 32.0 MB, 33.0 MB, missed",
		"New connections obey: label removed, denied, P99: ≤ 100 ms, 49.0 ms (n 3, P50 4.00 ms, max 49.0 ms), met",
		"New connections obey: policy added, denied, P99: ≤ 100 ms, 149 ms (n 3, P50 4.00 ms, max 149 ms; broke off), missed",
		"Connections with a wrong outcome, all of Beeline's networks: ≤ 0, 1 (of 2), missed",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// targetRow is a row of the table of targets.
type targetRow struct{ target, required, measured, interval, result string }

func targetRows(run *result.Run) (rows []targetRow) {
	for _, r := range newView(run).targetSection().Tables[0].Rows {
		rows = append(rows, targetRow{r.Name, r.Cells[0].Text, r.Cells[1].Text, r.Cells[2].Text, r.Cells[3].Text})
	}
	return rows
}

// outcomes maps each target to its result, measured value and interval.
func outcomes(run *result.Run) map[string]string {
	got := map[string]string{}
	for _, r := range targetRows(run) {
		got[r.target] = r.result + ", " + r.measured + ", " + r.interval
	}
	return got
}

func wantOutcomes(t *testing.T, run *result.Run, want map[string]string) {
	t.Helper()
	got := outcomes(run)
	for target, w := range want {
		if got[target] != w {
			t.Errorf("%s: %q, want %q", target, got[target], w)
		}
	}
}

// A measurement that broke off meets no target with the values that it has, and can still miss one.
func TestBrokenOffMeetsNoTarget(t *testing.T) {
	run := policyRun()
	run.Policy.Convergence[0].Error = "connections reached it to the end"
	run.Policy.Compiled[0].Error = "the agent has ended"
	run.Policy.Connectivity = []result.Connectivity{
		{Network: beeline, Connections: run.Policy.Connectivity[0].Connections}, {Network: withPolicy, Error: "no answer"}, run.Policy.Connectivity[2],
	}
	wantOutcomes(t, run, map[string]string{
		"New connections obey: label removed, denied, P99":            "not measured, 49.0 ms, n 3, P50 4.00 ms, max 49.0 ms; broke off",
		"New connections obey: policy added, denied, P99":             "missed, 149 ms, n 3, P50 4.00 ms, max 149 ms; broke off",
		"One label change among them in the kernel, slowest":          "not measured, 11.0 ms, n 1, P50 11.0 ms, max 11.0 ms; broke off",
		"Connections with a wrong outcome, all of Beeline's networks": "not measured, 0, of 1; broke off",
	})
}

func TestPoliciesAreShown(t *testing.T) {
	all := shown(t, New(policyRun()),
		"Targets", "beeline-blocks-100000 ÷ beeline-blocks-1", "0.911", "ingress, block, excepted", "same node", "UDP 7100", "1 of 1", "no rules",
		"policy added, denied", "149 ms", "interrupted", "33.0 MB", "from an empty start", "120 ms", "210 ms", "20.0 ms", "40.0 ms", "the agents", "50,003",
	)
	for name, want := range map[string]string{
		"text": "wrong: connected:", "markdown": "| blocked | **wrong: connected: beeline-policy; blocked: beeline** |",
		"page": `<td class="wrong">wrong: connected: beeline-policy; blocked: beeline</td>`,
	} {
		if !strings.Contains(unpadded(all[name]), want) {
			t.Errorf("%s does not mark the wrong outcome by %q", name, want)
		}
	}
	if !strings.Contains(all["page"], `id="policy-tcp_crr-t"`) {
		t.Error("the page lacks the chart")
	}
}

// A network that failed with one workload only is in both charts. A pair that was not measured at all is in none.
func TestChartsShowWhatIsMissing(t *testing.T) {
	run := policyRun()
	for i := range run.Samples {
		if s := &run.Samples[i]; s.Network == withPolicy && s.Workload == "tcp_crr" {
			s.Values, s.Error = nil, "timed out"
		}
	}
	run.Summary = stats.Summarize(run)
	page := rendered(t, New(run).HTML)
	for _, of := range []struct{ chart, row, value string }{
		{`id="policy-tcp_crr-t"`, ">÷ beeline-policy-flows-off<", ">no figure<"}, {`id="c-f-tcp_crr-cross-node-one-core-1-t"`, ">beeline-policy<", ">failed<"},
		{`id="s-f-tcp_crr-cross-node-one-core-1-t"`, ">beeline-policy<", ">failed<"},
	} {
		_, drawing, _ := strings.Cut(page, of.chart)
		drawing, _, _ = strings.Cut(drawing, "</svg>")
		if !strings.Contains(drawing, of.row) || !strings.Contains(drawing, of.value) {
			t.Errorf("%s has no row %s with %s", of.chart, of.row, of.value)
		}
	}
	if strings.Contains(page, policyMany+" ÷") {
		t.Error("a pair is drawn that no workload has measured")
	}
}

// An unknown outcome is neither right nor wrong, and leaves the target unmeasured.
func TestUnknownOutcomes(t *testing.T) {
	run := policyRun()
	right := run.Policy.Connectivity[0].Connections[0]
	unclear := right
	unclear.Unknown, unclear.From = "no route to host", "alien"
	run.Policy.Connectivity = []result.Connectivity{{Network: beeline, Connections: []result.Connection{right, unclear}}, {Network: withPolicy, Connections: []result.Connection{right, right}}}
	wantOutcomes(t, run, map[string]string{"Connections with a wrong outcome, all of Beeline's networks": "not measured, 0, of 3, 1 not known"})
	all := shown(t, New(run), "0 of 1", "1 of 2 not known, the first: no route to host", "0 of 2")
	if want := `<td class="missing" title="no route to host">not known: beeline; not tried in 1</td>`; !strings.Contains(all["page"], want) {
		t.Errorf("the page lacks %s", want)
	}
}
