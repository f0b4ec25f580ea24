package policy_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/policy"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/test/oracle"
)

// While two tables replace each other repeatedly, traffic that both deny is never allowed. One packet of a round is
// exempt if both ends change: the kernel may preempt its evaluation between the two ends for longer than a change takes
// (Sync), mostly on a machine under load. TestPoliciesPodSteps has the order of the steps.
func TestPoliciesNeverMoreOpen(t *testing.T) {
	const rounds, changes = 20, 40
	r := testenv.Rand(t)
	o := newPolicyOracle(t, config.Datapath{EBPFRouting: true})
	compiler := policy.NewCompiler(oracle.Here)
	forbidden := 0
	for range rounds {
		one := oracle.Random(r)
		other := oracle.Cluster{Snapshot: one.Snapshot}
		for range 3 {
			other = other.Change(r)
		}
		tables := [2]*policy.Tables{}
		for i, w := range []oracle.Cluster{one, other} {
			tables[i], _ = compiler.Compile(w.Snapshot, w.Local())
		}
		var never []evaluate.Traffic
		for range 400 {
			traffic := one.Traffic(r)
			if isForbidden(one, traffic) && isForbidden(other, traffic) && !otherRulesAtBothEnds(tables, traffic) {
				never = append(never, traffic)
			}
		}
		forbidden += len(never)
		if len(never) == 0 {
			continue
		}
		var stop atomic.Bool
		var writer sync.WaitGroup
		writer.Go(func() {
			defer stop.Store(true)
			for i := range changes {
				if _, err := o.D.Policies.Sync(tables[i%2]); err != nil {
					t.Error(err)
					return
				}
			}
		})
		// The tables of the previous round may be active until the first change.
		if _, err := o.D.Policies.Sync(tables[0]); err != nil {
			t.Error(err)
		}
		preempted := 0
		for i := 0; !stop.Load(); i++ {
			traffic := never[i%len(never)]
			passed, err := o.passes(o.path(one, traffic, i%2 == 0))
			if err != nil {
				t.Error(err)
			}
			if passed && bothEndsChange(tables, traffic) {
				preempted++
				passed = preempted > 1
			}
			if passed {
				t.Errorf("passed while tables changed: %s\nbefore and after:\n%s\n%s", oracle.Describe(traffic), one.YAML(), other.YAML())
				break
			}
		}
		writer.Wait()
		if t.Failed() {
			return
		}
	}
	t.Logf("%d connections that are never allowed", forbidden)
	if forbidden == 0 {
		t.Error("no traffic is denied in two successive clusters")
	}
}

// otherRulesAtBothEnds reports whether both ends have rules before and after, and other ones: which end gets its new
// ones first is undefined (Sync).
func otherRulesAtBothEnds(tables [2]*policy.Tables, t evaluate.Traffic) bool {
	others := func(before, after policy.Set) bool {
		rules := func(s policy.Set) bool { return s != policy.NotIsolated && s != policy.DenyAll }
		return rules(before) && rules(after) && before != after
	}
	from, to := t.Source.Address, t.Destination.Address
	return others(tables[0].Pods[from].Egress, tables[1].Pods[from].Egress) && others(tables[0].Pods[to].Ingress, tables[1].Pods[to].Ingress)
}

// bothEndsChange reports whether the rules of both ends change.
func bothEndsChange(tables [2]*policy.Tables, t evaluate.Traffic) bool {
	from, to := t.Source.Address, t.Destination.Address
	return tables[0].Pods[from].Egress != tables[1].Pods[from].Egress && tables[0].Pods[to].Ingress != tables[1].Pods[to].Ingress
}

// isForbidden reports whether a cluster denies traffic; false if an end is unknown there.
func isForbidden(w oracle.Cluster, t evaluate.Traffic) bool {
	allowed, _, err := oracle.Documentation(w, t)
	return err == nil && !allowed
}
