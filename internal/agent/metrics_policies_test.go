package agent

import (
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
