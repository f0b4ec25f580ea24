package endpoint

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/policy"
)

// noTable accepts all policies.
type noTable struct{}

func (noTable) Sync(*policy.Tables) (int, error) { return 1, nil }
func (noTable) Close([]netip.Addr) error         { return nil }
func (noTable) Release([]netip.Addr) error       { return nil }
func (noTable) HasAny([]netip.Addr) bool         { return false }

// An agent that adopts a pod whose program cannot be attached isolates the pod at once, and reports the error.
func TestAttachPodsClosesWhatIsMissing(t *testing.T) {
	log, web := slog.New(slog.DiscardHandler), netip.MustParseAddr("10.1.1.2")
	var closed route.Blackholes
	pods := failclosed.New(failclosed.Kernel{
		Attach: func(string, int) error { return &attach.PodError{Ingress: errors.New("no program")} },
		Exists: func(string, int) bool { return true },
		SyncClosed: func(now route.Blackholes, _ bool) (int, error) {
			closed = now
			return 1, nil
		},
	}, true, log)
	nothing := func() {}
	p := agentpolicy.New(agentpolicy.Options{
		Config: agentpolicy.Defaults(), Node: "n1", FailClosed: pods.Update, Changed: nothing, Reconcile: nothing, Beat: &loop.Beat{},
	}, noTable{}, log)
	e := &Endpoints{Options: Options{Policies: p, FailClosed: pods}, all: map[string]agentapi.Endpoint{"bl1": {
		HostDevice: "bl1", HostIfIndex: 7, Addresses: []netip.Addr{web}, Pod: agentapi.PodRef{Namespace: "shop", Name: "web", UID: "u1"},
	}}}
	p.Update(&cluster.Snapshot{
		Namespaces:      []*cluster.Namespace{{Name: "shop"}},
		Pods:            cluster.ListOf(&cluster.Pod{Namespace: "shop", Name: "web", UID: cluster.NewUID("u1")}),
		NetworkPolicies: []*cluster.NetworkPolicy{{Namespace: "shop", Name: "p", IsolatesIngress: true}},
	})
	p.UpdatePods(e.PolicyPods())
	p.UpdateNode([]netip.Addr{netip.MustParseAddr("10.0.0.1")})
	if err := p.Pass(); err != nil || len(closed.To) > 0 {
		t.Fatalf("closed before it is adopted: %v, error %v", closed, err)
	}
	if e.Attach() == nil {
		t.Error("a pod without a program is complete")
	}
	if !slices.Equal(closed.To, []netip.Addr{web}) || len(closed.From) > 0 {
		t.Errorf("closed: %+v", closed)
	}
}
