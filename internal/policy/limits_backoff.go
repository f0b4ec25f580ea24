package policy

import (
	"maps"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// A search that takes backoffFrom or longer may use at most 1/backoffShare of a CPU, but waits for at most backoffMax: on a
// busy node it takes long by the clock, and a corrected policy waits for it.
const (
	backoffFrom  = 100 * time.Millisecond
	backoffShare = 10

	backoffMax = 30 * time.Second
)

// backoff limits the time that a full table costs. The search for the policies to reject compiles many times, and a tenant can
// cause one by each change of a rejected policy. Until the next search is due, rejected policies stay rejected, and if the
// tables overflow, changed policies are rejected first.
type backoff struct {
	now func() time.Time
	// next is when rejected policies may be tried again. postponed says that some wait for it.
	next      time.Time
	postponed bool
	// searching says that this pass is such a search.
	searching bool
	// policies are those of the last search, and spaces the namespaces with rejected policies.
	policies map[*cluster.NetworkPolicy]bool
	spaces   map[string]bool
}

// reasonPending is the reason of a policy that is rejected until the next search.
const reasonPending = "its rules wait: all policies together exceed the capacity of the table (--policies-max); what changed meanwhile is evaluated again within 30 s"

func (p *backoff) isActive() bool { return p.now().Before(p.next) }

// found records the result of a search that started at begin.
func (p *backoff) found(policies []*cluster.NetworkPolicy, rejected map[*cluster.NetworkPolicy]string, begin time.Time) {
	end := p.now()
	took := end.Sub(begin)
	if !p.searching || took < backoffFrom {
		return
	}
	p.next = end.Add(min((backoffShare-1)*took, backoffMax))
	p.policies, p.spaces = make(map[*cluster.NetworkPolicy]bool, len(policies)), map[string]bool{}
	for _, policy := range policies {
		p.policies[policy] = true
	}
	for policy, reason := range rejected {
		if reason != reasonPending { // not searched yet
			p.spaces[policy.Namespace] = true
		}
	}
}

// changed returns the policies that are new or changed since the last search: first those of namespaces with rejected policies,
// then the others.
func (p *backoff) changed(policies []*cluster.NetworkPolicy) (steps [2][]*cluster.NetworkPolicy) {
	for _, policy := range policies {
		if p.policies[policy] {
			continue
		}
		if p.spaces[policy.Namespace] {
			steps[0] = append(steps[0], policy)
		} else {
			steps[1] = append(steps[1], policy)
		}
	}
	return steps
}

// Postponed returns when Compile may return another result for the same arguments; zero if it will not.
func (c *Compiler) Postponed() time.Time {
	if p := &c.limits.entries.backoff; p.postponed {
		return p.next
	}
	return time.Time{}
}

// keepRejected keeps policies rejected, by name.
func (c *Compiler) keepRejected(policies []*cluster.NetworkPolicy) {
	before := c.limits.entries.rejected
	reasons := make(map[cluster.Key]string, len(before))
	for p, reason := range before {
		reasons[p.Key()] = reason
	}
	now, same := map[*cluster.NetworkPolicy]string{}, true
	for _, p := range policies {
		if reason, rejected := reasons[p.Key()]; rejected {
			now[p] = reason
			same = same && before[p] != ""
		}
	}
	if !same || len(now) != len(before) {
		c.setRejected(now)
	}
}

// rejectChanged rejects policies that changed since the last search while the next one is not due: first those of namespaces
// with rejected policies, then those of namespaces above their share, then all others.
func (c *Compiler) rejectChanged(tables *Tables, problems []Problem, again func() (*Tables, []Problem)) (*Tables, []Problem) {
	b := &c.limits.entries
	if !b.backoff.isActive() {
		return tables, problems
	}
	_, active := c.setsByPolicy()
	reject := func(rejected map[*cluster.NetworkPolicy]string) {
		if len(rejected) > 0 {
			maps.Copy(rejected, b.rejected)
			b.backoff.postponed = true
			c.setRejected(rejected)
			tables, problems = again()
		}
	}
	for step, changed := range b.backoff.changed(active) {
		if step > 0 { // others lose their changes only if rejecting the largest is not enough
			reject(c.excess(tables, 0))
		}
		if len(c.overflowing(tables)) == 0 {
			break
		}
		waiting := make(map[*cluster.NetworkPolicy]string, len(changed))
		for _, p := range changed {
			waiting[p] = reasonPending
		}
		reject(waiting)
	}
	return tables, problems
}
