package oracle

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// An Evaluator with one fault is found, and the shrunk cluster shows only that.
func TestDisagreement(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	withoutExcept := func(w Cluster, t evaluate.Traffic) (bool, string, error) {
		s := *w.Snapshot
		s.NetworkPolicies = nil
		for _, p := range w.NetworkPolicies {
			open := *p
			for _, rules := range []*[]cluster.PolicyRule{&open.Ingress, &open.Egress} {
				*rules = slices.Clone(*rules)
				for i, rule := range *rules {
					rule.Peers = slices.Clone(rule.Peers)
					for j := range rule.Peers {
						rule.Peers[j].Except = nil
					}
					(*rules)[i] = rule
				}
			}
			s.NetworkPolicies = append(s.NetworkPolicies, &open)
		}
		return Documentation(Cluster{&s}, t)
	}
	for range 100_000 {
		w := Random(r)
		traffic := w.Traffic(r)
		want, _, err := Documentation(w, traffic)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := withoutExcept(w, traffic); err != nil || got == want {
			continue
		}
		text := Disagreement(w, traffic, withoutExcept)
		t.Log(text)
		if strings.Count(text, "kind: NetworkPolicy") != 1 || strings.Count(text, "except:") != 1 || strings.Count(text, "cidr:") != 1 ||
			strings.Count(text, "kind: Pod") > 3 || strings.Contains(text, "labels:") || strings.Contains(text, "kind: Namespace\n") {
			t.Errorf("this is not the smallest cluster:\n%s", text)
		}
		return
	}
	t.Error("no disagreement was found")
}

// Successive clusters share what has not changed, and are sorted like snapshots.
func TestChange(t *testing.T) {
	r := testenv.Rand(t)
	w := Random(r)
	for range 100 {
		before := w.YAML()
		next := w.Change(r)
		if diff := cmp.Diff(before, w.YAML()); diff != "" {
			t.Fatalf("the cluster before has changed:\n%s", diff)
		}
		if !slices.IsSortedFunc(next.NetworkPolicies, func(a, b *cluster.NetworkPolicy) int { return a.Key().Compare(b.Key()) }) {
			t.Fatal("policies are out of order")
		}
		w = next
	}
}
