package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// listing is a policy that allows a number of single external addresses to all pods of its namespace.
func listing(namespace, name string, blocks, from int) *cluster.NetworkPolicy {
	rule := cluster.PolicyRule{}
	for i := range blocks {
		n := from + i
		addr := netip.AddrFrom4([4]byte{203, byte(n >> 16), byte(n >> 8), byte(n)})
		rule.Peers = append(rule.Peers, cluster.PolicyPeer{Block: netip.PrefixFrom(addr, 32)})
	}
	return &cluster.NetworkPolicy{Namespace: namespace, Name: name, IsolatesIngress: true, Ingress: []cluster.PolicyRule{rule}}
}

// The blocks of one namespace use the capacity of no other: the pods that its policies select are isolated, and no others.
func TestBlocksOfOneNamespaceAreBounded(t *testing.T) {
	s := &cluster.Snapshot{}
	local := Local{Addresses: addrs("192.168.60.11")}
	for i, namespace := range []string{"evil", "good"} {
		s.Namespaces = append(s.Namespaces, &cluster.Namespace{Name: namespace, Labels: cluster.NewLabels(map[string]string{"kubernetes.io/metadata.name": namespace})})
		pod := &cluster.Pod{Namespace: namespace, Name: "pod", Node: "n1", Addresses: addrs(fmt.Sprintf("10.1.1.%d", i+2)), Labels: cluster.NewLabels(nil)}
		s.Pods = withPod(s.Pods, pod)
		local.Pods = append(local.Pods, LocalPod{Pod: pod.Key(), Addresses: pod.Addresses})
	}
	good := listing("good", "list", 10, 1<<20)
	c := NewCompiler("n1")
	c.bound(Sizes{Blocks: 100})
	compile := func(policies ...*cluster.NetworkPolicy) (*Tables, []Problem) {
		t.Helper()
		with := *s
		with.NetworkPolicies = policies
		tables, problems := c.Compile(&with, local)
		if n := len(tables.Blocks); n > 100 {
			t.Errorf("%d blocks in a table of 100", n)
		}
		for pod := range s.Pods.All() {
			if _, known := tables.Peers.Get(pod.Addresses[0]); !known {
				t.Errorf("pod %s has no identity", pod.Key())
			}
		}
		if sets := tables.Pods[s.Pods.Slice()[1].Addresses[0]]; sets.Ingress == DenyAll || sets.Ingress == NotIsolated || sets.Egress != NotIsolated {
			t.Errorf("the pod of the other namespace has %+v", sets)
		}
		return tables, problems
	}
	evil := func(tables *Tables) Set { return tables.Pods[s.Pods.Slice()[0].Addresses[0]].Ingress }

	if tables, problems := compile(listing("evil", "list", 90, 0), good); len(problems) != 0 || evil(tables) == DenyAll {
		t.Errorf("what fits is rejected: %v", problems)
	}
	tables, problems := compile(listing("evil", "list", 91, 0), good)
	if evil(tables) != DenyAll || len(tables.Blocks) != 10 {
		t.Errorf("the pod whose policy does not fit has %x, and there are %d blocks", evil(tables), len(tables.Blocks))
	}
	want := `NetworkPolicy evil/list: its 91 ipBlocks and exceptions exceed the capacity: namespace "evil" needs 91, its share is 90 (--identities-max); isolated: pod evil/pod`
	if len(problems) != 1 || problems[0].Text != want || problems[0].Policy.Name != "list" {
		t.Errorf("problems are %v, want %s", problems, want)
	}
	// Of several policies of the namespace the first ones fit, but the pod that all select is isolated; each is named
	// once.
	tables, problems = compile(listing("evil", "a", 60, 0), listing("evil", "b", 60, 100), listing("evil", "c", 20, 200), good)
	if evil(tables) != DenyAll || len(problems) != 1 || !strings.HasPrefix(problems[0].Text, "NetworkPolicy evil/b: its 60 ipBlocks") {
		t.Errorf("%x, problems %v", evil(tables), problems)
	}
	if tables, problems := compile(listing("evil", "list", 90, 0), good); len(problems) != 0 || evil(tables) == DenyAll || len(tables.Blocks) != 100 {
		t.Errorf("what fits again is rejected: %v", problems)
	}
}

// slow is a compiler that takes a time for each compilation by its own clock, and gives the means to advance it.
func slow(c *Compiler, each time.Duration) (sleep func(time.Duration)) {
	var slept time.Duration
	start := time.Now()
	c.limits.entries.backoff.now = func() time.Time { return start.Add(slept + time.Duration(c.pass)*each) }
	return func(d time.Duration) { slept += d }
}

// splitting is a cluster whose tables overflow: some tenants split identities that the rules of all others treat
// alike, each twice as much as the next, so that each round rejects one.
func splitting() (w *tenants, policies []*cluster.NetworkPolicy) {
	const good, evil = 16, 7
	var names []string
	for n := range good {
		names = append(names, fmt.Sprint("good", n))
		policies = append(policies, admitting(names[n], "p", selecting("app", "web")))
	}
	var values []string
	for n := range evil {
		name := fmt.Sprint("evil", n)
		names = append(names, name)
		var peers []cluster.PolicyPeer
		for i := range 1 << (evil - 1 - n) {
			value := fmt.Sprint(n, "-", i)
			values = append(values, value)
			peers = append(peers, selecting("of", value))
		}
		policies = append(policies, admitting(name, "p", peers...))
	}
	w = newTenants(names...)
	w.peers("x", len(values), func(n int) map[string]string { return map[string]string{"app": "web", "of": values[n]} })
	return w, policies
}

// A tenant that changes a rejected policy again and again costs each agent about one compilation per change, and does
// not affect other namespaces. The change is active when the next search is due.
func TestChangesOfRejectedArePaced(t *testing.T) {
	for _, of := range []struct {
		name   string
		change func(n int, before *cluster.NetworkPolicy) []*cluster.NetworkPolicy
	}{
		{"changed", func(n int, before *cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			other := *before
			return []*cluster.NetworkPolicy{&other}
		}},
		{"removed and added", func(n int, before *cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			if n%2 == 0 {
				return nil
			}
			other := *before
			return []*cluster.NetworkPolicy{&other}
		}},
		{"another name", func(n int, before *cluster.NetworkPolicy) []*cluster.NetworkPolicy {
			other := *before
			other.Name = fmt.Sprint("p", n)
			return []*cluster.NetworkPolicy{&other}
		}},
	} {
		t.Run(of.name, func(t *testing.T) {
			w, policies := splitting()
			c := NewCompiler("n1")
			const capacity, changes = 150, 200
			const each, gap = 300 * time.Millisecond, time.Second // so that paceLongest does not delay anything
			sleep := slow(c, each)
			c.SetSizes(Sizes{Policies: capacity})
			tables, _ := w.compile(c, policies...)
			first, most := c.pass, uint64(0)
			if first < 4 || len(tables.Policies) > capacity {
				t.Fatalf("%d compilations find what fits: the case is wrong", first)
			}
			victim := slices.IndexFunc(policies, func(p *cluster.NetworkPolicy) bool { return c.limits.entries.rejected[p] != "" })
			releaseScratch := slices.Delete(slices.Clone(policies), victim, victim+1)
			for n := range changes {
				sleep(gap)
				before := c.pass
				tables, _ := w.compile(c, append(of.change(n, policies[victim]), releaseScratch...)...)
				most = max(most, c.pass-before)
				if len(tables.Policies) > capacity {
					t.Fatalf("change %d: %d entries in a table of %d", n, len(tables.Policies), capacity)
				}
				for _, p := range policies {
					if !strings.HasPrefix(p.Namespace, "evil") && w.sets(tables, p.Namespace).Ingress == DenyAll {
						t.Fatalf("change %d: the pod of namespace %s is isolated", n, p.Namespace)
					}
				}
			}
			// One for each change, another where the tables overflow, and a tenth of the time.
			if got, want := c.pass-first, uint64(2*changes+changes*(gap+2*each)/each/backoffShare); got > want {
				t.Errorf("%d compilations for %d changes, want %d at most", got, changes, want)
			}
			t.Logf("%d compilations for %d changes, at most %d for one, after %d", c.pass-first, changes, most, first)
		})
	}
}

// Policies that have become small enough are active at the time that Postponed gives, though nothing else changes.
func TestPostponedIsTakenUp(t *testing.T) {
	w, c, policies := refusing(t)
	sleep := slow(c, time.Second)
	// Rejected once more by a clock that counts.
	other := *policies[0]
	policies = []*cluster.NetworkPolicy{&other, policies[1]}
	if tables, _ := w.compile(c, policies...); w.closed(tables) != "evil/pod" || !c.Postponed().IsZero() {
		t.Fatalf("isolated are %q, postponed until %v", w.closed(tables), c.Postponed())
	}
	small := admitting("evil", "p", selecting("n", "1"))
	policies = []*cluster.NetworkPolicy{small, policies[1]}
	tables, _ := w.compile(c, policies...)
	wait := c.Postponed().Sub(c.limits.entries.backoff.now())
	if w.closed(tables) != "evil/pod" || wait <= 0 {
		t.Fatalf("isolated are %q, postponed for %v", w.closed(tables), wait)
	}
	sleep(wait)
	if tables, problems := w.compile(c, policies...); w.closed(tables) != "" || len(problems) != 0 || !c.Postponed().IsZero() {
		t.Errorf("isolated are %q, postponed until %v: %v", w.closed(tables), c.Postponed(), problems)
	}
}

// bound is SetSizes with an infinitely fast clock.
func (c *Compiler) bound(s Sizes) {
	c.SetSizes(s)
	stopped := time.Now()
	c.limits.entries.backoff.now = func() time.Time { return stopped }
}

// A policy that changes while others wait stays active when the tables overflow because of another tenant's pods: the
// tenant gives them labels that its own policy has split since before.
func TestChangesOfOthersStayActive(t *testing.T) {
	const capacity, many = 150, 64
	w, policies := splitting()
	var values []cluster.PolicyPeer
	for i := range many {
		values = append(values, selecting("of", fmt.Sprint("late-", i)))
	}
	policies = append(policies, admitting("good15", "late", values...))
	c := NewCompiler("n1")
	slow(c, time.Second)
	c.SetSizes(Sizes{Policies: capacity})
	w.compile(c, policies...)
	if !c.limits.entries.backoff.isActive() || c.limits.entries.rejected[policies[len(policies)-1]] != "" {
		t.Fatal("no policy waits, or the policy without pods is rejected: the case is wrong")
	}
	policies = slices.Clone(policies) // a list that was compiled is never changed
	policies[0] = admitting("good0", "p", selecting("app", "web"), selecting("app", "more"))
	for n := range many {
		w.snapshot.Pods = withPod(w.snapshot.Pods, &cluster.Pod{
			Namespace: "late", Name: fmt.Sprint("y", n), Node: "n2", Addresses: addrs(fmt.Sprintf("10.3.0.%d", n)),
			Labels: cluster.NewLabels(map[string]string{"app": "web", "of": fmt.Sprint("late-", n)}),
		})
	}
	tables, _ := w.compile(c, policies...)
	if len(tables.Policies) > capacity {
		t.Errorf("%d entries in a table of %d", len(tables.Policies), capacity)
	}
	if w.sets(tables, "good15").Ingress != DenyAll {
		t.Error("the pod of the namespace whose policy splits the new pods is open")
	}
	if w.sets(tables, "good0").Ingress == DenyAll {
		t.Error("the pod of the namespace whose policy has changed is isolated")
	}
}

// A namespace whose policies only wait was not rejected: they have not been evaluated.
func TestWhoWaitsHasNotGivenWay(t *testing.T) {
	clock := time.Unix(0, 0)
	p := backoff{now: func() time.Time { clock = clock.Add(backoffFrom); return clock }, searching: true}
	evil, good := &cluster.NetworkPolicy{Namespace: "evil"}, &cluster.NetworkPolicy{Namespace: "good"}
	p.found(nil, map[*cluster.NetworkPolicy]string{evil: "its rules do not fit", good: reasonPending}, clock)
	if first := p.changed([]*cluster.NetworkPolicy{evil, good})[0]; len(first) != 1 || first[0] != evil {
		t.Errorf("%d policies are rejected first, want that of evil alone", len(first))
	}
}
