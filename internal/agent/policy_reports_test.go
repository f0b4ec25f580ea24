package agent

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agent/endpoint"
	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agent/programs"
	"github.com/beeline-cni/beeline/internal/agent/reconcile"
	"github.com/beeline-cni/beeline/internal/agent/source"
	"github.com/beeline-cni/beeline/internal/agent/status"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// noTable accepts all policies.
type noTable struct{}

func (noTable) Sync(*policy.Tables) (int, error) { return 1, nil }
func (noTable) Close([]netip.Addr) error         { return nil }
func (noTable) Release([]netip.Addr) error       { return nil }
func (noTable) HasAny([]netip.Addr) bool         { return false }

// silent is a source without problems.
type silent struct{ cluster.Source }

func (silent) Problems() []string { return nil }

// An invalid policy that isolates local pods has an Event of its own, and is no problem of the node.
func TestPolicyThatIsNotUnderstoodHasAnEvent(t *testing.T) {
	nothing := func() {}
	p := agentpolicy.New(agentpolicy.Options{
		Config: agentpolicy.Defaults(), Node: "n1", Changed: nothing, Reconcile: nothing, Beat: &loop.Beat{},
		FailClosed: func(map[netip.Addr]policy.Sets) map[netip.Addr]failclosed.Missing { return nil },
	}, noTable{}, slog.New(slog.DiscardHandler))
	p.UpdateNode([]netip.Addr{netip.MustParseAddr("10.0.0.1")})
	p.UpdatePods([]policy.LocalPod{{Pod: cluster.Key{Namespace: "shop", Name: "web"}, UID: "u1", Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.2")}}})
	s := &cluster.Snapshot{Since: time.Now(), Pods: cluster.ListOf(&cluster.Pod{Namespace: "shop", Name: "web", UID: cluster.NewUID("u1")})}
	for _, namespace := range []string{"elsewhere", "shop"} {
		s.NetworkPolicies = append(s.NetworkPolicies, &cluster.NetworkPolicy{
			Namespace: namespace, Name: "p", UID: "of-" + namespace, IsolatesIngress: true, Invalid: "spec.ingress[0] is nonsense",
		})
	}
	p.Update(s)
	if err := p.Pass(); err != nil {
		t.Fatal(err)
	}
	agent := &Agent{policies: p, source: silent{}, reconciler: &reconcile.Reconciler{}, endpoints: &endpoint.Endpoints{}, vetter: &source.Vetter{}, programs: &programs.Programs{}}
	if diff := cmp.Diff(status.Outlook{Objects: []status.Warning{{Reason: status.ReasonPolicyClosed, ObjectProblem: cluster.ObjectProblem{
		Kind: cluster.KindNetworkPolicy, Key: cluster.Key{Namespace: "shop", Name: "p"}, UID: "of-shop",
		Text: "NetworkPolicy shop/p: spec.ingress[0] is nonsense; isolated: pod shop/web",
	}}}}, agent.outlook()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
