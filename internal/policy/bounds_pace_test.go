package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// slow is a compiler that takes so long for each compilation by its own clock, which it gives the means to advance.
func slow(c *Compiler, each time.Duration) (sleep func(time.Duration)) {
	var slept time.Duration
	start := time.Now()
	c.bounds.entries.pace.now = func() time.Time { return start.Add(slept + time.Duration(c.pass)*each) }
	return func(d time.Duration) { slept += d }
}

// splitting is a cluster whose tables overflow: some tenants tell apart what is alike to the rules of all others, each twice as much as the next
// one, so that in each round one gives way.
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

// A tenant that changes a refused policy again and again has each agent compile about once for each change, not many times, and nobody else has
// anything of it. What it comes to is in force when that is due.
func TestChangesOfWhatIsRefusedArePaced(t *testing.T) {
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
			const room, changes = 150, 200
			const each, gap = 300 * time.Millisecond, time.Second // so that nothing is put off by paceLongest
			sleep := slow(c, each)
			c.Bound(Sizes{Policies: room})
			tables, _ := w.compile(c, policies...)
			first, most := c.pass, uint64(0)
			if first < 4 || len(tables.Policies) > room {
				t.Fatalf("%d compilations find out what fits: the case is not what it should be", first)
			}
			victim := slices.IndexFunc(policies, func(p *cluster.NetworkPolicy) bool { return c.bounds.entries.refused[p] != "" })
			rest := slices.Delete(slices.Clone(policies), victim, victim+1)
			for n := range changes {
				sleep(gap)
				before := c.pass
				tables, _ := w.compile(c, append(of.change(n, policies[victim]), rest...)...)
				most = max(most, c.pass-before)
				if len(tables.Policies) > room {
					t.Fatalf("change %d: %d entries in a table of %d", n, len(tables.Policies), room)
				}
				for _, p := range policies {
					if !strings.HasPrefix(p.Namespace, "evil") && w.sets(tables, p.Namespace).Ingress == Closed {
						t.Fatalf("change %d: the pod of namespace %s is closed", n, p.Namespace)
					}
				}
			}
			// One for each change, another where the tables overflow, and a tenth of the time.
			if got, want := c.pass-first, uint64(2*changes+changes*(gap+2*each)/each/paceShare); got > want {
				t.Errorf("%d compilations for %d changes, want %d at most", got, changes, want)
			}
			t.Logf("%d compilations for %d changes, at most %d for one, after %d", c.pass-first, changes, most, first)
		})
	}
}

// What has become small enough is in force when the time has come that Postponed gives, though nothing else changes.
func TestPostponedIsTakenUp(t *testing.T) {
	w, c, policies := refusing(t)
	sleep := slow(c, time.Second)
	// Refused once more by a clock that counts.
	other := *policies[0]
	policies = []*cluster.NetworkPolicy{&other, policies[1]}
	if tables, _ := w.compile(c, policies...); w.closed(tables) != "evil/pod" || !c.Postponed().IsZero() {
		t.Fatalf("closed are %q, postponed until %v", w.closed(tables), c.Postponed())
	}
	small := admitting("evil", "p", selecting("n", "1"))
	policies = []*cluster.NetworkPolicy{small, policies[1]}
	tables, _ := w.compile(c, policies...)
	wait := c.Postponed().Sub(c.bounds.entries.pace.now())
	if w.closed(tables) != "evil/pod" || wait <= 0 {
		t.Fatalf("closed are %q, postponed for %v", w.closed(tables), wait)
	}
	sleep(wait)
	if tables, problems := w.compile(c, policies...); w.closed(tables) != "" || len(problems) != 0 || !c.Postponed().IsZero() {
		t.Errorf("closed are %q, postponed until %v: %v", w.closed(tables), c.Postponed(), problems)
	}
}

// bound is Bound, and nothing takes any time.
func (c *Compiler) bound(s Sizes) {
	c.Bound(s)
	stopped := time.Now()
	c.bounds.entries.pace.now = func() time.Time { return stopped }
}

// Who changes a policy while others wait keeps it in force when the tables overflow by what somebody else's pods are: a tenant gives them labels that
// its policy has told apart since before.
func TestChangesOfOthersStayInForce(t *testing.T) {
	const room, many = 150, 64
	w, policies := splitting()
	var values []cluster.PolicyPeer
	for i := range many {
		values = append(values, selecting("of", fmt.Sprint("late-", i)))
	}
	policies = append(policies, admitting("good15", "late", values...))
	c := NewCompiler("n1")
	slow(c, time.Second)
	c.Bound(Sizes{Policies: room})
	w.compile(c, policies...)
	if !c.bounds.entries.pace.waits() || c.bounds.entries.refused[policies[len(policies)-1]] != "" {
		t.Fatal("nobody waits, or the policy of which there are no pods is refused: the case is not what it should be")
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
	if len(tables.Policies) > room {
		t.Errorf("%d entries in a table of %d", len(tables.Policies), room)
	}
	if w.sets(tables, "good15").Ingress != Closed {
		t.Error("the pod of the namespace whose policy tells the new pods apart is open")
	}
	if w.sets(tables, "good0").Ingress == Closed {
		t.Error("the pod of the namespace whose policy has changed is closed")
	}
}

// A namespace whose policies only wait has not given way: nobody has looked at them.
func TestWhoWaitsHasNotGivenWay(t *testing.T) {
	clock := time.Unix(0, 0)
	p := entryPace{now: func() time.Time { clock = clock.Add(paceFrom); return clock }, looking: true}
	evil, good := &cluster.NetworkPolicy{Namespace: "evil"}, &cluster.NetworkPolicy{Namespace: "good"}
	p.found(nil, map[*cluster.NetworkPolicy]string{evil: "its rules do not fit", good: reasonWaiting}, clock)
	if first := p.changed([]*cluster.NetworkPolicy{evil, good})[0]; len(first) != 1 || first[0] != evil {
		t.Errorf("%d policies give way first, want that of evil alone", len(first))
	}
}
