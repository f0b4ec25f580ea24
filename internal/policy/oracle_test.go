package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/test/oracle"
)

// byTables is the oracle.Evaluator that looks up compiled tables.
func byTables(tables *policy.Tables) oracle.Evaluator {
	return func(w oracle.Cluster, t evaluate.Traffic) (allowed bool, why string, err error) {
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
func namesRule(w oracle.Cluster, t evaluate.Traffic, direction policy.Direction, sets policy.Sets, allowed bool, by cluster.Key) error {
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

// compiled is byTables of a single oracle.Cluster.
func compiled(w oracle.Cluster, t evaluate.Traffic) (bool, string, error) {
	tables, _ := policy.NewCompiler(oracle.Here).Compile(w.Snapshot, w.Local())
	return byTables(tables)(w, t)
}

// compare compiles cluster after cluster and evaluates traffic in each. It gives the number of cases, and of allowed
// ones.
func compare(tb testing.TB, r *rand.Rand, worlds, traffic int) (cases, allowed int) {
	tb.Helper()
	compiler := policy.NewCompiler(oracle.Here)
	var w oracle.Cluster
	for i := range worlds {
		if i%4 == 0 {
			w = oracle.Random(r)
		} else {
			w = w.Change(r)
		}
		tables, _ := compiler.Compile(w.Snapshot, w.Local())
		evaluator := byTables(tables)
		for range traffic {
			t := w.Traffic(r)
			want, _, err := oracle.Documentation(w, t)
			if err != nil {
				tb.Fatal(err)
			}
			got, _, err := evaluator(w, t)
			if err != nil {
				tb.Fatalf("%v\n%s", err, oracle.Disagreement(w, t, compiled))
			}
			if got != want {
				tb.Fatal(oracle.Disagreement(w, t, compiled))
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
