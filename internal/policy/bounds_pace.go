package policy

import (
	"maps"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// The pace of fitting rules into tables: what takes paceFrom or more takes one part in paceShare of a CPU, but is put off by paceLongest at most: on
// a busy node it takes long by the clock, and a policy that was mended waits for it.
const (
	paceFrom  = 100 * time.Millisecond
	paceShare = 10

	paceLongest = 30 * time.Second
)

// entryPace bounds the time that a full table costs. Finding out who gives way compiles many times, and a tenant can cause it by each change of a
// policy that is refused. Until the next time is due, refused policies stay refused whatever they become, and where the tables do not fit, the
// policies that have changed give way first.
type entryPace struct {
	now func() time.Time
	// next is when refused policies may be looked at again. postponed says that some wait for it.
	next      time.Time
	postponed bool
	// looking says that it is being found out.
	looking bool
	// policies are those that there were when it was found out last, and spaces the namespaces that gave way.
	policies map[*cluster.NetworkPolicy]bool
	spaces   map[string]bool
}

// reasonWaiting is why a policy is refused that nobody has looked at yet.
const reasonWaiting = "its rules wait: all policies together exceed the capacity of the table (--policies-max); what changed meanwhile is evaluated again within 30 s"

func (p *entryPace) waits() bool { return p.now().Before(p.next) }

// found takes note of who gives way among some policies. It took since begin to find out.
func (p *entryPace) found(policies []*cluster.NetworkPolicy, refused map[*cluster.NetworkPolicy]string, begin time.Time) {
	end := p.now()
	took := end.Sub(begin)
	if !p.looking || took < paceFrom {
		return
	}
	p.next = end.Add(min((paceShare-1)*took, paceLongest))
	p.policies, p.spaces = make(map[*cluster.NetworkPolicy]bool, len(policies)), map[string]bool{}
	for _, policy := range policies {
		p.policies[policy] = true
	}
	for policy, reason := range refused {
		if reason != reasonWaiting { // nobody has looked at it yet
			p.spaces[policy.Namespace] = true
		}
	}
}

// changed gives those of some policies that have come or changed since: first those of the namespaces that gave way, then the others.
func (p *entryPace) changed(policies []*cluster.NetworkPolicy) (steps [2][]*cluster.NetworkPolicy) {
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

// Postponed is when Compile may say something else though its arguments are the same; zero if it will not.
func (c *Compiler) Postponed() time.Time {
	if p := &c.bounds.entries.pace; p.postponed {
		return p.next
	}
	return time.Time{}
}

// keepRefused goes on refusing what is refused, by name.
func (c *Compiler) keepRefused(policies []*cluster.NetworkPolicy) {
	before := c.bounds.entries.refused
	reasons := make(map[cluster.Key]string, len(before))
	for p, reason := range before {
		reasons[p.Key()] = reason
	}
	now, same := map[*cluster.NetworkPolicy]string{}, true
	for _, p := range policies {
		if reason, refused := reasons[p.Key()]; refused {
			now[p] = reason
			same = same && before[p] != ""
		}
	}
	if !same || len(now) != len(before) {
		c.refuseEntries(now)
	}
}

// refuseChanged refuses policies that have changed since the last fitting, while the next one is not due: first those of the namespaces that gave way
// then, then those of namespaces that exceed their share, then all others.
func (c *Compiler) refuseChanged(tables *Tables, problems []Problem, again func() (*Tables, []Problem)) (*Tables, []Problem) {
	b := &c.bounds.entries
	if !b.pace.waits() {
		return tables, problems
	}
	_, inForce := c.setsByPolicy()
	refuse := func(refused map[*cluster.NetworkPolicy]string) {
		if len(refused) > 0 {
			maps.Copy(refused, b.refused)
			b.pace.postponed = true
			c.refuseEntries(refused)
			tables, problems = again()
		}
	}
	for step, changed := range b.pace.changed(inForce) {
		if step > 0 { // others lose what they have changed only if it is not enough that those give way who ask for most
			refuse(c.tooMany(tables, 0))
		}
		if len(c.tooFull(tables)) == 0 {
			break
		}
		waiting := make(map[*cluster.NetworkPolicy]string, len(changed))
		for _, p := range changed {
			waiting[p] = reasonWaiting
		}
		refuse(waiting)
	}
	return tables, problems
}
