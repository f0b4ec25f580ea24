package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agent/failclosed"
	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/agent/node"
	agentpolicy "github.com/beeline-cni/beeline/internal/agent/policy"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
)

// heard is a reporter that takes down what it is told.
type heard struct{ said []string }

func (h *heard) Run(context.Context) error { return nil }

func (h *heard) Available(available bool, reason, message string) {
	word := "unavailable "
	if available {
		word = "available "
	}
	h.said = append(h.said, word+reason+": "+message)
}

func (h *heard) NodeEvent(reason, message string) {
	h.said = append(h.said, "node "+reason+": "+message)
}

func (h *heard) PolicyEvent(namespace, name, uid, reason, message string) {
	h.said = append(h.said, "policy "+namespace+"/"+name+" "+uid+" "+reason+": "+message)
}

func (h *heard) ObjectEvent(kind cluster.Kind, namespace, name, uid, reason, message string) {
	h.said = append(h.said, fmt.Sprintf("%s %s %s %s: %s", kind, cluster.Key{Namespace: namespace, Name: name}, uid, reason, message))
}

func (h *heard) PodEvent(namespace, name, uid, reason, message string) {
	h.said = append(h.said, "pod "+namespace+"/"+name+" "+uid+" "+reason+": "+message)
}

func TestAnnounce(t *testing.T) {
	const ready = "available BeelineReady: Beeline gives pods of this node their network"
	broken := outlook{failure: errors.New("no uplink")}
	pod := node.PodProblem{Pod: agentapi.PodRef{Namespace: "shop", Name: "web", UID: "u1"}, Text: "pod shop/web is stray"}
	type step struct {
		after time.Duration // since the step before
		o     outlook
		said  []string
		again time.Duration
	}
	closes := func(uid string) []agentpolicy.Warning {
		return []agentpolicy.Warning{{Problem: policy.Problem{Policy: cluster.Key{Namespace: "shop", Name: "p"}, UID: uid, Text: "no"}}}
	}
	for name, steps := range map[string][]step{
		"a node that is ready says so": {{0, outlook{}, []string{ready}, 0}},
		"a node that is not ready for a moment says nothing": {
			{0, outlook{}, []string{ready}, 0},
			{0, broken, nil, 30 * time.Second},
			{20 * time.Second, broken, nil, 10 * time.Second},
			{5 * time.Second, outlook{}, []string{ready}, 0},
			{20 * time.Second, broken, nil, 30 * time.Second},
		},
		"a node that stays not ready says why": {
			{0, broken, nil, 30 * time.Second},
			{30 * time.Second, broken, []string{"unavailable BeelineNotReady: no uplink"}, 0},
			{time.Hour, outlook{failure: errors.New("worse")}, []string{"unavailable BeelineNotReady: worse"}, 0},
			{time.Second, outlook{}, []string{ready}, 0},
		},
		"a problem that lasts becomes one event, and another when it comes back": {
			{0, outlook{problems: []string{"a"}}, []string{ready}, 5 * time.Second},
			{3 * time.Second, outlook{problems: []string{"a", "b"}}, []string{ready}, 2 * time.Second},
			{2 * time.Second, outlook{problems: []string{"a", "b"}}, []string{ready, "node BeelineProblem: a"}, 3 * time.Second},
			{3 * time.Second, outlook{problems: []string{"a"}}, []string{ready}, 0},
			{time.Hour, outlook{}, []string{ready}, 0},
			{0, outlook{problems: []string{"a"}}, []string{ready}, 5 * time.Second},
			{5 * time.Second, outlook{problems: []string{"a"}}, []string{ready, "node BeelineProblem: a"}, 0},
		},
		"a policy that closes pods is told of there, and anew when it is another one": {
			{0, outlook{policies: closes("u1")}, []string{ready}, 5 * time.Second},
			{5 * time.Second, outlook{policies: closes("u1")}, []string{ready, "policy shop/p u1 BeelinePolicyClosed: no"}, 0},
			{time.Second, outlook{policies: closes("u2")}, []string{ready}, 5 * time.Second},
		},
		"a problem of a pod is told there": {
			{0, outlook{pods: []node.PodProblem{pod, {Text: "a container without a pod"}}}, []string{ready}, 5 * time.Second},
			{5 * time.Second, outlook{pods: []node.PodProblem{pod, {Text: "a container without a pod"}}},
				[]string{ready, "pod shop/web u1 BeelinePodProblem: pod shop/web is stray"}, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &heard{}
			a := announcer{reporter: h}
			now := time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				h.said = nil
				again := a.tell(s.o, now)
				if diff := cmp.Diff(s.said, h.said); diff != "" {
					t.Errorf("step %d (-want +said):\n%s", i, diff)
				}
				if again != s.again {
					t.Errorf("step %d: again after %s, want %s", i, again, s.again)
				}
			}
		})
	}
}

// Only what the agent makes use of is a reason to go over everything.
func TestTake(t *testing.T) {
	nodes := []cluster.Node{{Name: "a"}}
	a := &Agent{}
	for i, step := range []struct {
		s    *cluster.Snapshot
		want bool
	}{
		{&cluster.Snapshot{Nodes: nodes, Incomplete: true}, true},
		{&cluster.Snapshot{Nodes: nodes}, true},
		{&cluster.Snapshot{Nodes: nodes, Pods: cluster.ListOf(&cluster.Pod{Name: "p"})}, false},
		{&cluster.Snapshot{Nodes: []cluster.Node{{Name: "a"}}}, true},
		{&cluster.Snapshot{}, true},
		{&cluster.Snapshot{}, false},
	} {
		if got := a.take(step.s); got != step.want || a.snapshot != step.s {
			t.Errorf("step %d: %t, want %t", i, got, step.want)
		}
	}
}

// silent is a source without problems.
type silent struct{ cluster.Source }

func (silent) Problems() []string { return nil }

// A policy that is not understood has an Event of its own, and is no matter of the node's, if it closes pods here.
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
			Namespace: namespace, Name: "p", UID: "of-" + namespace, IsolatesIngress: true, Wrong: "spec.ingress[0] is nonsense",
		})
	}
	p.Update(s)
	if err := p.Pass(); err != nil {
		t.Fatal(err)
	}
	h := &heard{}
	a, now := announcer{reporter: h}, time.Now()
	agent := &Agent{policies: p, source: silent{}, snapshot: s}
	for range 3 {
		a.tell(agent.outlook(), now)
		now = now.Add(announceAfter)
	}
	h.said = slices.DeleteFunc(h.said, func(said string) bool { return strings.HasPrefix(said, "available") })
	if diff := cmp.Diff([]string{
		"policy shop/p of-shop BeelinePolicyClosed: NetworkPolicy shop/p: spec.ingress[0] is nonsense; closed is what it may be about: pod shop/web",
	}, h.said); diff != "" {
		t.Errorf("(-want +said):\n%s", diff)
	}
}
