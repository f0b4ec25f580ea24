package policy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// A policy that no pass has included, or that could not be written, is pending; and so is one that has changed since.
func TestPendingPoliciesAreNotActive(t *testing.T) {
	named := func(name string) *cluster.NetworkPolicy { return &cluster.NetworkPolicy{Namespace: "shop", Name: name} }
	active, closed, pending, changed := named("a"), named("b"), named("c"), named("d")
	states := states{
		active.Key(): {of: active, state: agentapi.PolicyActive}, closed.Key(): {of: closed, state: agentapi.PolicyClosed},
		pending.Key(): {of: pending, state: agentapi.PolicyPending}, changed.Key(): {of: named("d"), state: agentapi.PolicyActive},
	}
	all := []*cluster.NetworkPolicy{active, closed, pending, changed, named("new")}
	s := agentapi.PolicyStatus{Enforced: true, Policies: len(all)}
	if s.Closed, s.Pending = states.count(all); s.Closed != 1 || s.Pending != 3 {
		t.Errorf("%d are closed and %d pending", s.Closed, s.Pending)
	}
	got := map[string]int{}
	collect(s, func(d *prometheus.Desc, v int, labels ...string) {
		if d == descPolicies {
			got[labels[0]] = v
		}
	})
	if diff := cmp.Diff(map[string]int{"active": 1, "closed": 1, "pending": 3}, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// The status and the metrics agree on pods and tables.
func TestPolicyMetrics(t *testing.T) {
	collected := func(s agentapi.PolicyStatus) map[string]int {
		got := map[string]int{}
		collect(s, func(d *prometheus.Desc, v int, labels ...string) {
			_, name, _ := strings.Cut(d.String(), `fqName: "`)
			name, _, _ = strings.Cut(name, `"`)
			got[strings.Join(append([]string{name}, labels...), " ")] = v
		})
		return got
	}
	s := agentapi.PolicyStatus{Enforced: true, Pods: 7, ClosedPods: 2, Sets: 3, Identities: 4, Blocks: 5}
	want := map[string]int{
		"beeline_policy_pods active": 5, "beeline_policy_pods closed": 2, "beeline_policy_synced": 0, "beeline_policies active": 0, "beeline_policies closed": 0,
		"beeline_policies pending": 0, "beeline_policy_sets": 3, "beeline_policy_identities": 4, "beeline_policy_blocks": 5,
	}
	if diff := cmp.Diff(want, collected(s)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	s.Synced = true
	if known := collected(s)["beeline_policy_synced"]; known != 1 {
		t.Errorf("policies are known, and the metric is %d", known)
	}
}

// The status counts entries of tables: an ipBlock of one address is a single address, as in the datapath's table.
func TestPolicyStatusCountsTables(t *testing.T) {
	table, p := newFakePolicies()
	p.compile = policy.NewCompiler("n1").Compile
	s := policySnapshot("shop")
	s.NetworkPolicies[0].Ingress = []cluster.PolicyRule{{Peers: []cluster.PolicyPeer{
		{Block: netip.MustParsePrefix("192.0.2.1/32")}, {Block: netip.MustParsePrefix("198.51.100.0/24")},
	}}}
	p.Update(s)
	p.UpdatePods([]policy.LocalPod{webLocal})
	mustPass(t, p)
	if !table.HasAny(webLocal.Addresses) {
		t.Fatal("the tables do not know the pod")
	}
	got := p.Status()
	if got.Pods != 1 || got.Identities != 2 || got.Blocks != 2 {
		t.Errorf("%d pods, %d addresses and %d blocks, want 1, 2 and 2: %+v", got.Pods, got.Identities, got.Blocks, got)
	}
}
