package policy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// refusing are tenants with a namespace whose rules are refused, since there are too many pods of other nodes that they tell apart.
func refusing(t *testing.T) (*tenants, *Compiler, []*cluster.NetworkPolicy) {
	t.Helper()
	w := newTenants("evil", "good")
	w.peers("x", 100, func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n)} })
	var peers []cluster.PolicyPeer
	for n := range 100 {
		peers = append(peers, selecting("n", fmt.Sprint(n)))
	}
	policies := []*cluster.NetworkPolicy{admitting("evil", "p", peers...), admitting("good", "p", peers[:10]...)}
	c := NewCompiler("n1")
	c.bound(Sizes{Policies: 60})
	if tables, problems := w.compile(c, policies...); w.closed(tables) != "evil/pod" {
		t.Fatalf("closed are %q: %v", w.closed(tables), problems)
	}
	return w, c, policies
}

// without leaves out pods of other nodes, by their number.
func (t *tenants) without(from, to int) {
	t.snapshot.Pods = cluster.ListOf(slices.DeleteFunc(t.snapshot.Pods.Slice(), func(p *cluster.Pod) bool {
		return p.Name >= fmt.Sprintf("x%04d", from) && p.Name < fmt.Sprintf("x%04d", to)
	})...)
}

// What is refused is taken up again when the pods have gone that it was too much for, though nothing else changes on the node.
func TestRefusedIsTakenUpAgain(t *testing.T) {
	t.Run("pods of the refused alone", func(t *testing.T) {
		w, c, policies := refusing(t)
		w.without(40, 100)
		if tables, problems := w.compile(c, policies...); w.closed(tables) != "" || len(problems) != 0 {
			t.Errorf("closed are %q: %v", w.closed(tables), problems)
		}
	})
	t.Run("entries of others", func(t *testing.T) {
		w, c, policies := refusing(t)
		w.without(0, 9)
		for _, passes := range []uint64{3, 1} { // without what is refused, with all of it, and once more without
			before := c.pass
			if w.compile(c, policies...); c.pass != before+passes {
				t.Errorf("%d passes, want %d", c.pass-before, passes)
			}
		}
	})
	t.Run("little by little", func(t *testing.T) {
		w, c, policies := refusing(t)
		for from := 100; from > 30; from -= 5 {
			w.without(from-5, from)
			w.compile(c, policies...)
		}
		if tables, problems := w.compile(c, policies...); w.closed(tables) != "" || len(problems) != 0 {
			t.Errorf("closed are %q: %v", w.closed(tables), problems)
		}
	})
}

// What is refused stays so, and costs nothing, when there is more, and is looked at again when there is less.
func TestRefusedStaysWhenThereIsMore(t *testing.T) {
	for _, of := range []struct {
		name   string
		change func(*tenants, []*cluster.NetworkPolicy) []*cluster.NetworkPolicy
		passes uint64
	}{
		{"nothing", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy { return p }, 1},
		{"another pod here", func(w *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			w.here("good", "more", &cluster.NetworkPolicy{})
			return p
		}, 1},
		{"another pod elsewhere", func(w *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			w.snapshot.Pods = withPod(w.snapshot.Pods, &cluster.Pod{Namespace: "z", Name: "z", Node: "n2", Addresses: addrs("10.3.0.1"), Labels: cluster.NewLabels(nil)})
			return p
		}, 1},
		{"another policy of others", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			return append(slices.Clone(p), admitting("good", "q"))
		}, 1},
		{"a policy of others is another", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			other := *p[1]
			return []*cluster.NetworkPolicy{p[0], &other}
		}, 1},
		{"another policy of the refused", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			return []*cluster.NetworkPolicy{p[0], admitting("evil", "q"), p[1]}
		}, 2},
		{"the refused is another", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			other := *p[0]
			return []*cluster.NetworkPolicy{&other, p[1]}
		}, 2},
		{"a policy goes", func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy { return p[:1] }, 2},
		{"a pod here goes", func(w *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			w.local.Pods = slices.DeleteFunc(slices.Clone(w.local.Pods), func(p LocalPod) bool { return p.Pod.Namespace == "good" })
			return p
		}, 2},
		{"a pod here is another of its name", func(w *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			w.local.Pods = slices.Clone(w.local.Pods)
			w.local.Pods[1].UID = "00000000-0000-0000-0000-000000000001"
			return p
		}, 2},
	} {
		t.Run(of.name, func(t *testing.T) {
			w, c, policies := refusing(t)
			for range 2 { // the second time nothing changes
				before := c.pass
				policies = of.change(w, policies)
				of.change = func(_ *tenants, p []*cluster.NetworkPolicy) []*cluster.NetworkPolicy { return p }
				tables, problems := w.compile(c, policies...)
				if got := w.closed(tables); got != "evil/pod" || len(problems) != 1 {
					t.Errorf("closed are %q: %v", got, problems)
				}
				if c.pass-before != of.passes {
					t.Errorf("%d passes, want %d", c.pass-before, of.passes)
				}
				of.passes = 1
			}
		})
	}
}

// What goes is noticed also if it has come after something was refused.
func TestWhatCameLaterGoes(t *testing.T) {
	w, c, policies := refusing(t)
	w.compile(c, append(slices.Clone(policies), admitting("good", "q"))...)
	before := c.pass
	if w.compile(c, policies...); c.pass != before+2 {
		t.Errorf("%d passes, want 2", c.pass-before)
	}
}

// What is far too much for the table is not made, and what is decided does not depend on what has been.
func TestEntriesAreBoundedBeforeTheyAreMade(t *testing.T) {
	const capacity = 50
	w := newTenants("good")
	w.peers("x", 300, func(n int) map[string]string { return map[string]string{"n": fmt.Sprint(n), "app": "web"} })
	var peers []cluster.PolicyPeer
	for n := range 300 {
		peers = append(peers, selecting("n", fmt.Sprint(n)))
	}
	good := admitting("good", "p", selecting("app", "web"))
	var evil []*cluster.NetworkPolicy
	for n := range 20 {
		name := fmt.Sprintf("pod%02d", n)
		evil = append(evil, w.here("evil", name, admitting("evil", name, peers...)))
	}
	compilers := [2]*Compiler{NewCompiler("n1"), NewCompiler("n1")}
	for _, c := range compilers {
		c.bound(Sizes{Policies: capacity})
	}
	w.compile(compilers[0], evil[0], good)

	// The first pass makes a part, and writes nothing of it.
	snapshot := w.snapshot
	snapshot.NetworkPolicies = append(slices.Clone(evil), good)
	probe := NewCompiler("n1")
	probe.bound(Sizes{Policies: capacity})
	tables, _ := probe.compile(&snapshot, w.local)
	made := 0
	for i := range probe.used {
		made += len(i.value.entries)
	}
	if most := 2 * (4*capacity + len(evil) + 1); made > most || len(tables.Policies) != 0 { // of some in no order, and of the part
		t.Errorf("%d entries are made, and %d written; want %d at most, and 0", made, len(tables.Policies), most)
	}
	var closed [2]string
	for n, c := range compilers {
		tables, problems := w.compile(c, append(slices.Clone(evil), good)...)
		if closed[n] = w.closed(tables); len(tables.Policies) > capacity || w.sets(tables, "good").Ingress == Closed {
			t.Errorf("closed are %q of %d entries: %v", closed[n], len(tables.Policies), problems)
		}
	}
	if closed[0] != closed[1] {
		t.Errorf("closed are %q after something else, and otherwise %q", closed[0], closed[1])
	}
}

// Whatever is refused, given up half made, and taken up again: who is not closed has what the policies say, and the tables fit.
func TestRandomChangesOfFullTables(t *testing.T) {
	const policies, ports = 12, 25
	refused, taken := 0, 0
	for seed := range uint64(20) {
		w := newRandomWorld(seed)
		c := NewCompiler("n1")
		c.bound(Sizes{Policies: policies, Ports: ports})
		for step := range 40 {
			for range 1 + w.IntN(3) {
				w.change()
			}
			snapshot := w.snapshot()
			local := localTo("n1", snapshot)
			before := len(c.bounds.entries.refused)
			tables, _ := c.Compile(snapshot, local)
			if now := len(c.bounds.entries.refused); now > before {
				refused++
			} else if now < before {
				taken++
			}
			if len(tables.Policies) > policies || len(tables.Ports) > ports {
				t.Fatalf("seed %d, step %d: %d and %d entries", seed, step, len(tables.Policies), len(tables.Ports))
			}
			agree(t, tables, snapshot, slices.DeleteFunc(w.questions(local, 60), func(q question) bool {
				return tables.Pods[q.subject].in(q.direction) == Closed
			}))
			disjoint(t, tables)
		}
	}
	if refused < 20 || taken < 20 {
		t.Errorf("%d times more is refused, and %d times less: the case is not what it should be", refused, taken)
	}
}
