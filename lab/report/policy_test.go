package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/stats"
)

// ofPolicies makes a run of the policy bench, of invented figures: new connections cost a little more with policies, flows
// cost too much, and one contender lets a connection through that it must not.
func ofPolicies() *result.Run {
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
		{baseline, 1, 1}, {subject, 0.9, 0.9}, {policyElsewhere, 0.9, 0.899}, {withPolicy, 0.89, 0.82}, {blocksOne, 0.89, 0.82}, {blocksMany, 0.888, 0.81},
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
	answer := func(want, works bool) result.Connection {
		return result.Connection{
			Direction: result.Ingress, Rule: "block", Case: "excepted", Path: result.SameNode, Protocol: "UDP", From: "stranger", To: "block-near", Port: 7100,
			Allowed: want, Connected: works,
		}
	}
	run.Policy = &result.Policy{
		Policies: 1000, Pods: 1000, IPBlocks: 100000,
		Connectivity: []result.Connectivity{
			{Network: subject, Connections: []result.Connection{answer(false, false)}},
			{Network: withPolicy, Connections: []result.Connection{answer(false, true)}},
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

func TestPromisesOfPolicies(t *testing.T) {
	var got []string
	for _, r := range newView(ofPolicies()).promises() {
		if r.Kept == notMeasured {
			continue
		}
		beside := ""
		if strings.HasPrefix(r.Wanted, "≤") && r.Interval != dash {
			beside = " (" + r.Interval + ")"
		}
		got = append(got, r.What+": "+r.Wanted+", "+r.Got+beside+", "+r.Kept)
	}
	want := []string{
		"No policy on the pod, policies elsewhere, TCP_RR: ≥ 0.99, 1.000, kept",
		"No policy on the pod, policies elsewhere, TCP_CRR: ≥ 0.99, 0.999, kept",
		"Allowing policies on both pods, TCP_RR: ≥ 0.97, 0.989, kept",
		"Allowing policies on both pods, TCP_CRR: ≥ 0.93, 0.911, not kept",
		"100,000 ipBlocks against 1, TCP_RR: ≥ 0.98, 0.998, kept",
		"100,000 ipBlocks against 1, TCP_CRR: ≥ 0.98, 0.988, kept",
		"Flows on, by default, with policies, TCP_RR: ≥ 0.97, 1.000, kept",
		"Flows on, by default, with policies, TCP_CRR: ≥ 0.97, 0.988, kept",
		"Flows of all pods, without policies, TCP_RR: ≥ 0.97, 0.989, kept",
		"Flows of all pods, without policies, TCP_CRR: ≥ 0.97, 0.889, not kept",
		"1,000 policies × 1,000 pods, 100 of them here, from nothing until they are in the kernel, the slowest: ≤ 1.00 s, 210 ms (n 2, P50 120 ms, max 210 ms), kept",
		"One label change among them until it is in the kernel, the slowest: ≤ 100 ms, 11.0 ms (n 1, P50 11.0 ms, max 11.0 ms), kept",
		"Tables of policy with them, in MB of 10⁶ bytes: ≤ 32.0 MB, 33.0 MB, not kept",
		"New connections obey, label changed, forbids, P99: ≤ 100 ms, 49.0 ms (n 3, P50 4.00 ms, max 49.0 ms), kept",
		"New connections obey, policy added, forbids, P99: ≤ 100 ms, 149 ms (n 3, P50 4.00 ms, max 149 ms; broke off), not kept",
		"Connections that are not as the policies say, of all of Beeline's contenders: ≤ 0, 1 (of 2), not kept",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What broke off while it was measured keeps no promise with what it has, and still may break one.
func TestBrokenOffKeepsNoPromise(t *testing.T) {
	run := ofPolicies()
	run.Policy.Convergence[0].Error = "connections reached it to the end"
	run.Policy.Compiled[0].Error = "the agent has ended"
	run.Policy.Connectivity = []result.Connectivity{
		{Network: subject, Connections: run.Policy.Connectivity[0].Connections}, {Network: withPolicy, Error: "no answer"}, run.Policy.Connectivity[2],
	}
	got := map[string]string{}
	for _, r := range newView(run).promises() {
		got[r.What] = r.Kept + ", " + r.Got + ", " + r.Interval
	}
	for what, want := range map[string]string{
		"New connections obey, label changed, forbids, P99":                            "not measured, 49.0 ms, n 3, P50 4.00 ms, max 49.0 ms; broke off",
		"New connections obey, policy added, forbids, P99":                             "not kept, 149 ms, n 3, P50 4.00 ms, max 149 ms; broke off",
		"One label change among them until it is in the kernel, the slowest":           "not measured, 11.0 ms, n 1, P50 11.0 ms, max 11.0 ms; broke off",
		"Connections that are not as the policies say, of all of Beeline's contenders": "not measured, 0, of 1; broke off",
	} {
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
	}
}

func TestPoliciesAreShown(t *testing.T) {
	run := ofPolicies()
	var table, markdown, page bytes.Buffer
	for _, err := range []error{Table(&table, run), Markdown(&markdown, run), HTML(&page, run)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"table": table.String(), "markdown": markdown.String(), "page": page.String()} {
		for _, want := range []string{
			"What is promised", "beeline-blocks-100000 ÷ beeline-blocks-1", "0.911", "ingress, block, excepted", "same node", "UDP 7100", "1 of 1 wrong", "no rules",
			"policy added, forbids", "149 ms", "interrupted", "33.0 MB", "120 ms (max 210 ms, n 2)", "20.0 ms (max 40.0 ms, n 2)", "the agents", "set × identity", "50,003",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	for text, want := range map[string]string{
		table.String():    `WRONG, has to be "does not": works with beeline-policy; does not with beeline`,
		markdown.String(): "**wrong:** works with beeline-policy; does not with beeline", page.String(): `<td class="wrong">works, wrong</td>`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("what is wrong is not marked by %q", want)
		}
	}
	checkPage(t, page.Bytes())
	if !strings.Contains(page.String(), `id="policy-tcp_crr-t"`) {
		t.Error("the page lacks the chart")
	}
}

// What was measured with one workload and failed with another is in both charts, and what was not measured at all in none.
func TestChartsShowWhatIsMissing(t *testing.T) {
	run := ofPolicies()
	for i := range run.Samples {
		if s := &run.Samples[i]; s.Network == withPolicy && s.Workload == "tcp_crr" {
			s.Values, s.Error = nil, "timed out"
		}
	}
	run.Summary = stats.Summarize(run)
	page := render(t, run)
	checkPage(t, page)
	for _, of := range []struct{ chart, row, value string }{
		{`id="policy-tcp_crr-t"`, ">÷ beeline-policy-flows-off<", ">no figure<"}, {`id="c-f-tcp_crr-cross-node-one-core-1-t"`, ">beeline-policy<", ">failed<"},
		{`id="s-f-tcp_crr-cross-node-one-core-1-t"`, ">beeline-policy<", ">failed<"},
	} {
		_, drawing, _ := strings.Cut(string(page), of.chart)
		drawing, _, _ = strings.Cut(drawing, "</svg>")
		if !strings.Contains(drawing, of.row) || !strings.Contains(drawing, of.value) {
			t.Errorf("%s has no row %s with %s", of.chart, of.row, of.value)
		}
	}
	if strings.Contains(string(page), policyMany+" ÷") {
		t.Error("a pair is drawn that no workload has measured")
	}
}

// A connection of which nobody knows whether it works is neither right nor wrong, and the promise about all of them waits for it.
func TestUnknownAnswersAreNoRightOnes(t *testing.T) {
	run := ofPolicies()
	right := run.Policy.Connectivity[0].Connections[0]
	unknown := right
	unknown.Unknown, unknown.From = "no route to host", "alien"
	run.Policy.Connectivity = []result.Connectivity{{Network: subject, Connections: []result.Connection{right, unknown}}, {Network: withPolicy, Connections: []result.Connection{right, right}}}
	for _, r := range newView(run).promises() {
		if strings.HasPrefix(r.What, "Connections that are not") && (r.Kept != notMeasured || r.Got != "0" || r.Interval != "of 3, 1 not known") {
			t.Errorf("%+v", r)
		}
	}
	var table, markdown, page bytes.Buffer
	for _, err := range []error{Table(&table, run), Markdown(&markdown, run), HTML(&page, run)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"table": table.String(), "markdown": markdown.String(), "page": page.String()} {
		for _, want := range []string{"0 of 1 wrong", "1 of 2 not known; the first: no route to host", "0 of 2 wrong"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	if caution := strings.Join(newView(run).cautions(), "; "); !strings.Contains(caution, "Of 1 connection it is not known whether") {
		t.Errorf("no caution but %q", caution)
	}
	if want := `<td class="missing" title="no route to host">not known</td>`; !strings.Contains(page.String(), want) {
		t.Errorf("the page lacks %s", want)
	}
}
