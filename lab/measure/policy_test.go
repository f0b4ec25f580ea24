package measure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
)

func TestPolicyPresets(t *testing.T) {
	quick, err := QuickPolicy(Choice{})
	if err != nil {
		testenv.Missing(t, err.Error())
	}
	if err := quick.Validate(); err != nil || quick.Mode != "quick" || len(quick.Cells) != len(PolicyWorkloads) || !quick.HasBaseline() {
		t.Errorf("%v, %+v", err, quick)
	}
	var names []string
	for _, c := range quick.Networks {
		names = append(names, c.Name())
	}
	want := []string{
		"node", "beeline", "beeline-policy-elsewhere", "beeline-policy", "beeline-policy-1000", "beeline-blocks-1", "beeline-blocks-100000",
		"beeline-flows", "beeline-policy-flows-off", "ptp", "ptp-iptables-policy",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if takes := quick.Estimate(); takes < time.Minute || takes > QuickPolicyLimit || quick.Until <= 0 || quick.Until > QuickPolicyLimit-quick.after() {
		t.Errorf("a quick run takes %v, and no round begins after %v", takes, quick.Until)
	}
	full, err := FullPolicy(Choice{Networks: []string{"beeline"}, Workloads: []string{"tcp_rr"}})
	if err != nil || len(full.Networks) != 1 || len(full.Cells) != 1 || full.HasBaseline() || full.Mode != "custom" {
		t.Errorf("%v, %+v", err, full)
	}
}

func TestPolicyPresetsRefuse(t *testing.T) {
	for want, c := range map[string]Choice{
		"no network":        {Networks: []string{"bridge"}},
		"not one of":        {Workloads: []string{"udp_rr"}},
		"path cross-node":   {Paths: []result.Path{result.SameNode}},
		"no placement":      {Placements: []result.Placement{"everywhere"}},
		"has one placement": {Placements: []result.Placement{result.OneCore, result.Spread}},
	} {
		if _, err := QuickPolicy(c); err == nil || !strings.Contains(err.Error(), want) {
			if err != nil && strings.Contains(err.Error(), "not installed") {
				testenv.Missing(t, err.Error())
			}
			t.Errorf("%+v gives %v, want %q", c, err, want)
		}
	}
	if err := (PolicyPlan{Schedule: Schedule{IPv6: true}}).Validate(); err == nil || !strings.Contains(err.Error(), "IPv4 only") {
		t.Errorf("IPv6: %v", err)
	}
}

func TestPolicyPasses(t *testing.T) {
	const log = `time=2026-11-20T22:00:00Z level=DEBUG msg="NetworkPolicies written" policies=1004 changed=3120 compile=120.5ms apply=1.2s error=<nil>
time=2026-11-20T22:00:01Z level=INFO msg="something else" changed=7 compile=1ms apply=1ms
time=2026-11-20T22:00:01Z level=DEBUG msg="NetworkPolicies written" policies=1004 changed=0 compile=2ms apply=10µs error=<nil>
time=2026-11-20T22:00:02Z level=DEBUG msg="NetworkPolicies written" policies=10`
	want := []policyPass{{1004, 3120, 120500 * time.Microsecond, 1200 * time.Millisecond}, {1004, 0, 2 * time.Millisecond, 10 * time.Microsecond}}
	if got, err := policyPasses(log); !slices.Equal(got, want) || err != nil {
		t.Errorf("%v, want %v; %v", got, want, err)
	}
	if _, err := policyPasses(strings.ReplaceAll(log, "policies=", "count=")); err == nil {
		t.Error("a log that says something else is understood")
	}
}

// An answer that is not known is none, whatever it says.
func TestJudged(t *testing.T) {
	answers := []result.Connection{{Allowed: true, Connected: true}, {Allowed: false, Connected: true}, {Allowed: true, Unknown: "no route"}, {Allowed: false, Unknown: "no route"}}
	if wrong, unknown := judged(answers); wrong != 1 || unknown != 2 {
		t.Errorf("%d wrong, %d unknown", wrong, unknown)
	}
}

// Changes are not timed among fewer policies than the result says.
func TestChangesNeedManyPolicies(t *testing.T) {
	l := &policyTestbed{policed: network.IptablesPolicies{}, objects: policies.NewState()}
	b := &policyBench{}
	if err := b.changesOf(t.Context(), l, &result.PolicyCompile{}); err == nil || !strings.Contains(err.Error(), "0 policies are in force") {
		t.Errorf("changes among no policies: %v", err)
	}
	if err := l.objects.Put(policies.OtherPolicies(policies.Many)...); err != nil {
		t.Fatal(err)
	}
	if err := l.amongMany(t.Context()); err != nil {
		t.Error(err)
	}
}

// The rules of iptables are right by every answer, and changes of them are noticed.
func TestRunPolicy(t *testing.T) {
	testenv.Root(t)
	needTools(t)
	if why := (network.IptablesPolicies{}).Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	p, err := QuickPolicy(Choice{Networks: []string{"node", "ptp-iptables-policy"}, Workloads: []string{"tcp_crr"}, Rounds: 1, Length: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p.Gate = Gate{Steal: 1, Foreign: 1, Retransmits: 1}
	p.WarmUp, p.Changes, p.Scratches, p.Seed = 0, 1, 1, 1
	run, err := RunPolicy(t.Context(), p, NewProgress(t.Output(), false, p.Estimate()))
	wantNothingLeft(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Samples {
		if s.Error != "" || s.Values[result.Rate] <= 0 {
			t.Errorf("%s of %s: %v, %s", s.Workload, s.Network, s.Values, s.Error)
		}
	}
	if len(run.Samples) != 3 || run.Settings.Suite != "policy" {
		t.Errorf("%d samples, %+v", len(run.Samples), run.Settings)
	}
	if len(run.Policy.Connectivity) != 1 || len(run.Policy.Connectivity[0].Connections) < 50 {
		t.Fatalf("%+v", run.Policy.Connectivity)
	}
	for _, a := range run.Policy.Connectivity[0].Connections {
		if a.Connected != a.Allowed || a.Unknown != "" {
			t.Errorf("%+v", a)
		}
	}
	var kinds []result.PolicyChange
	for _, c := range run.Policy.Convergence {
		kinds = append(kinds, c.Change)
		if len(c.Milliseconds) != 1 || c.Error != "" || c.Milliseconds[0] <= 0 {
			t.Errorf("%+v", c)
		}
	}
	if !slices.Equal(kinds, policyHappenings) {
		t.Errorf("%v", kinds)
	}
	if c := run.Policy.Compiled; len(c) != 1 || len(c[0].FullMilliseconds) != 1 || c[0].Error != "" {
		t.Errorf("%+v", c)
	}
}
