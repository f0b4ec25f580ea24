package status

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/google/go-cmp/cmp"
)

// recorder is a Reporter that records its calls.
type recorder struct{ said []string }

func (h *recorder) Run(context.Context) error { return nil }

func (h *recorder) Announce(cluster.Announced) {}

func (h *recorder) Available(available bool, reason, message string) {
	word := "unavailable "
	if available {
		word = "available "
	}
	h.said = append(h.said, word+reason+": "+message)
}

func (h *recorder) NodeEvent(reason, message string) {
	h.said = append(h.said, "node "+reason+": "+message)
}

func (h *recorder) ObjectEvent(reason string, p cluster.ObjectProblem) {
	h.said = append(h.said, fmt.Sprintf("%s %s %s %s: %s", p.Kind, p.Key, p.UID, reason, p.Text))
}

func TestAnnounce(t *testing.T) {
	const ready = "available BeelineReady: Beeline gives pods of this node their network"
	broken := Outlook{Failure: errors.New("no uplink")}
	warning := func(kind cluster.Kind, namespace, name, uid, reason, text string) Warning {
		return Warning{cluster.ObjectProblem{Kind: kind, Key: cluster.Key{Namespace: namespace, Name: name}, UID: uid, Text: text}, reason}
	}
	pods := []Warning{
		warning(cluster.KindPod, "shop", "web", "u1", ReasonPod, "pod shop/web is stray"),
		warning(cluster.KindPod, "", "c1", "", ReasonPod, "a container without a pod"),
	}
	type step struct {
		after time.Duration // since the last step
		o     Outlook
		said  []string
		again time.Duration
	}
	closes := func(uid string) []Warning {
		return []Warning{warning(cluster.KindNetworkPolicy, "shop", "p", uid, ReasonPolicyClosed, "no")}
	}
	for name, steps := range map[string][]step{
		"a node that is ready says so": {{0, Outlook{}, []string{ready}, 0}},
		"a node that is not ready for a moment says nothing": {
			{0, Outlook{}, []string{ready}, 0},
			{0, broken, nil, 30 * time.Second},
			{20 * time.Second, broken, nil, 10 * time.Second},
			{5 * time.Second, Outlook{}, []string{ready}, 0},
			{20 * time.Second, broken, nil, 30 * time.Second},
		},
		"a node that stays not ready says why": {
			{0, broken, nil, 30 * time.Second},
			{30 * time.Second, broken, []string{"unavailable BeelineNotReady: no uplink"}, 0},
			{time.Hour, Outlook{Failure: errors.New("worse")}, []string{"unavailable BeelineNotReady: worse"}, 0},
			{time.Second, Outlook{}, []string{ready}, 0},
		},
		"a problem that lasts becomes one event, and another when it comes back": {
			{0, Outlook{Problems: []string{"a"}}, []string{ready}, 5 * time.Second},
			{3 * time.Second, Outlook{Problems: []string{"a", "b"}}, []string{ready}, 2 * time.Second},
			{2 * time.Second, Outlook{Problems: []string{"a", "b"}}, []string{ready, "node BeelineProblem: a"}, 3 * time.Second},
			{3 * time.Second, Outlook{Problems: []string{"a"}}, []string{ready}, 0},
			{time.Hour, Outlook{}, []string{ready}, 0},
			{0, Outlook{Problems: []string{"a"}}, []string{ready}, 5 * time.Second},
			{5 * time.Second, Outlook{Problems: []string{"a"}}, []string{ready, "node BeelineProblem: a"}, 0},
		},
		"a policy that isolates pods has its own Event, and a recreated one another": {
			{0, Outlook{Objects: closes("u1")}, []string{ready}, 5 * time.Second},
			{5 * time.Second, Outlook{Objects: closes("u1")}, []string{ready, "NetworkPolicy shop/p u1 BeelinePolicyClosed: no"}, 0},
			{time.Second, Outlook{Objects: closes("u2")}, []string{ready}, 5 * time.Second},
		},
		"a problem of a pod is an Event on it": {
			{0, Outlook{Objects: pods}, []string{ready}, 5 * time.Second},
			{5 * time.Second, Outlook{Objects: pods},
				[]string{ready, "Pod shop/web u1 BeelinePodProblem: pod shop/web is stray"}, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := &recorder{}
			a := announcer{Reporter: h}
			now := time.Now()
			for i, s := range steps {
				now = now.Add(s.after)
				h.said = nil
				again := a.Report(s.o, now)
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
