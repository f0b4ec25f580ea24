package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// byTables is the Evaluator that looks up compiled tables.
func byTables(tables *policy.Tables) Evaluator {
	return func(w Cluster, t evaluate.Traffic) (allowed bool, why string, err error) {
		allowed = true
		for _, end := range []struct {
			self, other evaluate.Endpoint
			direction   policy.Direction
		}{{t.Source, t.Destination, policy.Egress}, {t.Destination, t.Source, policy.Ingress}} {
			sets := tables.Pods[end.self.Address]
			ok, by := tables.Verdict(sets, end.direction, end.other.Address, uint8(t.Protocol), t.Port)
			if end.other.Masqueraded {
				ok, by = tables.VerdictMasqueraded(sets, end.other.Address, uint8(t.Protocol), t.Port)
			}
			allowed = allowed && ok
			why += fmt.Sprintf("%s of %s: sets %+v, identity %#x: %t, by %v\n", end.direction, end.self.Address, sets,
				tables.Identity(end.other.Address), ok, tables.Names[by])
			if err := namesRule(w, t, end.direction, sets, ok, tables.Names[by]); err != nil {
				return allowed, why, err
			}
		}
		return allowed, why, nil
	}
}

// namesRule checks that the policy that tables report allows the traffic.
func namesRule(w Cluster, t evaluate.Traffic, direction policy.Direction, sets policy.Sets, allowed bool, by cluster.Key) error {
	v := evaluate.Evaluate(w.Snapshot, t)
	j, set := v.Ingress, sets.Ingress
	if direction == policy.Egress {
		j, set = v.Egress, sets.Egress
	}
	if !allowed || set == policy.NotIsolated || j.Reason != evaluate.ReasonRule {
		return nil
	}
	if !slices.ContainsFunc(j.Rules, func(r evaluate.Rule) bool { return r.Policy == by }) {
		return fmt.Errorf("%s is allowed in the name of %q, which is none of %v", direction, by, j.Rules)
	}
	return nil
}

// compiled is byTables of a single Cluster.
func compiled(w Cluster, t evaluate.Traffic) (bool, string, error) {
	tables, _ := policy.NewCompiler(Here).Compile(w.Snapshot, w.Local())
	return byTables(tables)(w, t)
}

// compare compiles cluster after cluster and evaluates traffic in each. It gives the number of cases, and of allowed
// ones.
func compare(tb testing.TB, r *rand.Rand, worlds, traffic int) (cases, allowed int) {
	tb.Helper()
	compiler := policy.NewCompiler(Here)
	var w Cluster
	for i := range worlds {
		if i%4 == 0 {
			w = Random(r)
		} else {
			w = w.Change(r)
		}
		tables, _ := compiler.Compile(w.Snapshot, w.Local())
		evaluator := byTables(tables)
		for range traffic {
			t := w.Traffic(r)
			want, _, err := Documentation(w, t)
			if err != nil {
				tb.Fatal(err)
			}
			got, _, err := evaluator(w, t)
			if err != nil {
				tb.Fatalf("%v\n%s", err, Disagreement(w, t, compiled))
			}
			if got != want {
				tb.Fatal(Disagreement(w, t, compiled))
			}
			cases++
			if got {
				allowed++
			}
		}
	}
	return cases, allowed
}

// Compiled tables agree with the documentation, cluster after cluster.
func TestTables(t *testing.T) {
	cases, allowed := compare(t, testenv.Rand(t), 3000, 50)
	t.Logf("%d cases, %d of them allowed", cases, allowed)
	if part := float64(allowed) / float64(cases); part < 0.2 || part > 0.9 {
		t.Errorf("%.0f %% are allowed: most of it tests too little", part*100)
	}
}

// The same, with seeds of the fuzzer.
func FuzzTables(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, one, other uint64) { compare(t, rand.New(rand.NewPCG(one, other)), 8, 20) })
}

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
