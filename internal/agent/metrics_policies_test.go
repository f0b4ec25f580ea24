package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath"
)

// A policy that no pass has been about, or that could not be written, is pending; and so is one that has changed since.
func TestPendingPoliciesAreNotInForce(t *testing.T) {
	named := func(name string) *cluster.NetworkPolicy { return &cluster.NetworkPolicy{Namespace: "shop", Name: name} }
	inForce, closed, pending, changed := named("a"), named("b"), named("c"), named("d")
	states := policyStates{
		inForce.Key(): {of: inForce, state: api.PolicyInForce}, closed.Key(): {of: closed, state: api.PolicyClosed},
		pending.Key(): {of: pending, state: api.PolicyPending}, changed.Key(): {of: named("d"), state: api.PolicyInForce},
	}
	all := []*cluster.NetworkPolicy{inForce, closed, pending, changed, named("new")}
	s := api.PolicyStatus{Enforced: true, Policies: len(all)}
	if s.Closed, s.Pending = states.count(all); s.Closed != 1 || s.Pending != 3 {
		t.Errorf("%d are closed and %d pending", s.Closed, s.Pending)
	}
	got := map[string]float64{}
	c := &nodeCollector{agent: &Agent{datapath: &datapath.Datapath{Sessions: &datapath.Sessions{}}}}
	c.collectPolicies(s, func(d *prometheus.Desc, v float64, labels ...string) {
		if d == descPolicies {
			got[labels[0]] = v
		}
	}, func(*prometheus.Desc, float64, ...string) {})
	if diff := cmp.Diff(map[string]float64{"in_force": 1, "closed": 1, "pending": 3}, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// What the status says of pods and tables is what the metrics say, and nothing of them where policies are not put into force.
func TestPolicyMetrics(t *testing.T) {
	collect := func(s api.PolicyStatus) map[string]float64 {
		got := map[string]float64{}
		c := &nodeCollector{agent: &Agent{datapath: &datapath.Datapath{Sessions: &datapath.Sessions{}}}}
		note := func(d *prometheus.Desc, v float64, labels ...string) {
			_, name, _ := strings.Cut(d.String(), `fqName: "`)
			name, _, _ = strings.Cut(name, `"`)
			got[strings.Join(append([]string{name}, labels...), " ")] = v
		}
		c.collectPolicies(s, note, note)
		return got
	}
	s := api.PolicyStatus{Enforced: true, Pods: 7, ClosedPods: 2, Sets: 3, Identities: 4, Blocks: 5, ExpiredSessions: 6}
	want := map[string]float64{
		"beeline_policy_pods in_force": 5, "beeline_policy_pods closed": 2, "beeline_policy_known": 0, "beeline_policies in_force": 0, "beeline_policies closed": 0,
		"beeline_policies pending": 0, "beeline_policy_sets": 3, "beeline_policy_identities": 4, "beeline_policy_blocks": 5, "beeline_sessions_expired_total": 6,
	}
	if diff := cmp.Diff(want, collect(s)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	s.Known = true
	if known := collect(s)["beeline_policy_known"]; known != 1 {
		t.Errorf("policies are known, and the metric is %g", known)
	}
	s.Enforced = false
	if diff := cmp.Diff(map[string]float64{"beeline_sessions_expired_total": 6}, collect(s)); diff != "" {
		t.Errorf("metrics without enforcement (-want +got):\n%s", diff)
	}
}
