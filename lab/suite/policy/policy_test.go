package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/apiserver"
	"github.com/beeline-cni/beeline/lab/network"
	"github.com/beeline-cni/beeline/lab/policies"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/round"
	"github.com/beeline-cni/beeline/lab/suite"
	"github.com/beeline-cni/beeline/lab/suite/internal/suitetest"
)

func TestMain(m *testing.M) { suitetest.Main(m) }

func TestPolicyPresets(t *testing.T) {
	quick, err := New(round.Options{})
	if err != nil {
		testenv.Missing(t, err.Error())
	}
	if err := quick.Validate(); err != nil || quick.Mode != "quick" || len(quick.Cells) != len(Workloads) || !suite.HasBaseline(quick) {
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
	var rest time.Duration
	for _, n := range quick.Networks {
		if n.Unsupported() == "" {
			rest += quick.Beside(n)
		}
	}
	if takes := quick.Estimate(); takes < time.Minute || takes > QuickLimit || quick.Until <= 0 || quick.Until > QuickLimit-rest {
		t.Errorf("a quick run takes %v, and no round begins after %v", takes, quick.Until)
	}
	full, err := New(round.Options{Full: true, Networks: []string{"beeline"}, Workloads: []string{"tcp_rr"}})
	if err != nil || len(full.Networks) != 1 || len(full.Cells) != 1 || suite.HasBaseline(full) || full.Mode != "custom" {
		t.Errorf("%v, %+v", err, full)
	}
}

func TestPolicyPresetsReject(t *testing.T) {
	for want, c := range map[string]round.Options{
		"no network":        {Networks: []string{"bridge"}},
		"not one of":        {Workloads: []string{"udp_rr"}},
		"path cross-node":   {Paths: []result.Path{result.SameNode}},
		"no placement":      {Placements: []result.Placement{"everywhere"}},
		"has one placement": {Placements: []result.Placement{result.OneCore, result.Spread}},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			if err != nil && strings.Contains(err.Error(), "not installed") {
				testenv.Missing(t, err.Error())
			}
			t.Errorf("%+v gives %v, want %q", c, err, want)
		}
	}
	if err := (&Suite{Base: suite.Base[*member]{Schedule: round.Schedule{IPv6: true}}}).Validate(); err == nil || !strings.Contains(err.Error(), "IPv4 only") {
		t.Errorf("IPv6: %v", err)
	}
}

func TestWritesIn(t *testing.T) {
	const log = `time=2026-11-20T22:00:00Z level=DEBUG msg="NetworkPolicies written" policies=1004 changed=3120 compile=120.5ms apply=1.2s error=<nil>
time=2026-11-20T22:00:01Z level=INFO msg="something else" changed=7 compile=1ms apply=1ms
time=2026-11-20T22:00:01Z level=DEBUG msg="NetworkPolicies written" policies=1004 changed=0 compile=2ms apply=10µs error=<nil>
time=2026-11-20T22:00:02Z level=DEBUG msg="NetworkPolicies written" policies=10`
	want := []policyWrite{{1004, 3120, 120500 * time.Microsecond, 1200 * time.Millisecond}, {1004, 0, 2 * time.Millisecond, 10 * time.Microsecond}}
	if got, err := writesIn(log); !slices.Equal(got, want) || err != nil {
		t.Errorf("%v, want %v; %v", got, want, err)
	}
	if _, err := writesIn(strings.ReplaceAll(log, "policies=", "count=")); err == nil {
		t.Error("a log that says something else is understood")
	}
}

// An answer that is not known is none, whatever it says.
func TestCount(t *testing.T) {
	answers := []result.Connection{{Allowed: true, Connected: true}, {Allowed: false, Connected: true}, {Allowed: true, Unknown: "no route"}, {Allowed: false, Unknown: "no route"}}
	if wrong, unknown := count(answers); wrong != 1 || unknown != 2 {
		t.Errorf("%d wrong, %d unknown", wrong, unknown)
	}
}

// Changes are not timed among fewer policies than the result says.
func TestChangesNeedManyPolicies(t *testing.T) {
	m := &member{Testbed: &suite.Testbed{API: apiserver.New()}, enforcer: network.IptablesPolicies}
	if err := (&Suite{}).changesOf(t.Context(), nil, m, &result.PolicyCompile{}); err == nil || !strings.Contains(err.Error(), "0 policies are active") {
		t.Errorf("changes among no policies: %v", err)
	}
	if err := m.API.Put(policies.OtherPolicies()...); err != nil {
		t.Fatal(err)
	}
	if err := m.amongMany(t.Context()); err != nil {
		t.Error(err)
	}
}

// The rules of iptables are right by every answer, and changes of them are noticed.
func TestRunPolicy(t *testing.T) {
	testenv.Root(t)
	suitetest.NeedTools(t)
	if why := network.IptablesPolicies.Unsupported(); why != "" {
		testenv.Missing(t, why)
	}
	p, err := New(round.Options{Networks: []string{"node", "ptp-iptables-policy"}, Workloads: []string{"tcp_crr"}, Rounds: 1, Length: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p.Gate = suitetest.OpenGate()
	p.WarmUp, p.Changes, p.Compiles, p.Seed = 0, 1, 1, 1
	run, err := round.Run(t.Context(), p, round.NewProgress(t.Output(), p.Estimate()))
	suitetest.NothingLeft(t)
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
	if !slices.Equal(kinds, changeKinds) {
		t.Errorf("%v", kinds)
	}
	if c := run.Policy.Compiled; len(c) != 1 || len(c[0].FullMilliseconds) != 1 || c[0].Error != "" {
		t.Errorf("%+v", c)
	}
}
