package policy

import (
	"maps"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// entryBounds keep the rules of one namespace from taking the room of others in Tables.Policies and Tables.Ports. What rules need there shows
// when they are compiled: a pass that needs too much is made again without those that need most.
type entryBounds struct {
	// refused are the policies whose rules are left out, each with the reason: whom they select is closed.
	refused map[*cluster.NetworkPolicy]string
	// policies and locals are those that were there last while something was refused.
	policies []*cluster.NetworkPolicy
	locals   []LocalPod
	// needed and sorts are how many entries there were, and sorts of pods in the cluster, when something was refused last.
	needed, sorts int
	// counted is how many entries of Tables.Policies this pass has made. If these are far too many, part is whose they are; otherwise it is nil.
	counted int
	part    map[*numbered[*identity]]bool
	pace    entryPace
}

// entryRounds is how often a pass is made again. In the round lastHalf and those after it, namespaces give way as a whole. What the first
// entryReturns rounds have refused is tried once more at the end.
const (
	entryRounds  = 16
	lastHalf     = 8
	entryReturns = 2
)

// overfull tells whether this pass has made more entries than the table has room for.
func (b *bounds) overfull() bool {
	return b.sizes.Policies > 0 && b.entries.counted > b.sizes.Policies
}

// farTooMany tells whether there is no sense in making more entries, which would take memory for nothing.
func (b *bounds) farTooMany() bool {
	const times = 4
	return b.sizes.Policies > 0 && b.entries.counted > times*b.sizes.Policies
}

// reconsider forgets what was refused when something has changed that may have made room. What is new makes none.
func (c *Compiler) reconsider(snapshot *cluster.Snapshot, local *Local) {
	b := &c.bounds.entries
	if len(b.refused) == 0 {
		return
	}
	room := b.pace.postponed || b.gone(snapshot.NetworkPolicies) || b.left(local.Pods)
	if room && b.pace.waits() {
		c.keepRefused(snapshot.NetworkPolicies)
		b.pace.postponed = len(b.refused) > 0
		return
	}
	b.policies, b.locals = snapshot.NetworkPolicies, local.Pods
	if room {
		b.pace.postponed, b.pace.looking = false, true
		c.refuseEntries(nil)
	}
}

// emptier tells whether the table, or the cluster, has become a quarter emptier since something was refused. What is refused has no entries that
// would tell whether the pods are still there that it was about.
func (c *Compiler) emptier(tables *Tables) bool {
	const quarters = 4
	b := &c.bounds.entries
	if len(b.refused) == 0 || c.bounds.overfull() {
		return false
	}
	entries, sorts := len(tables.Policies)+len(tables.Ports), c.peers.countSorts()
	return entries*quarters < b.needed*(quarters-1) || sorts*quarters < b.sorts*(quarters-1)
}

// gone tells whether a policy is gone, or is another in a namespace of which some are refused.
func (b *entryBounds) gone(policies []*cluster.NetworkPolicy) (gone bool) {
	refused := map[string]bool{}
	for p := range b.refused {
		refused[p.Namespace] = true
	}
	cluster.Differences(cluster.ListOf(b.policies...), cluster.ListOf(policies...), func(before, after *cluster.NetworkPolicy) {
		gone = gone || after == nil || refused[after.Namespace]
	})
	return gone
}

// left tells whether a pod is not here any more.
func (b *entryBounds) left(locals []LocalPod) bool {
	type name struct {
		pod cluster.Key
		uid string
	}
	here := make(map[name]bool, len(locals))
	for _, pod := range locals {
		here[name{pod.Pod, pod.UID}] = true
	}
	for _, pod := range b.locals {
		if !here[name{pod.Pod, pod.UID}] {
			return true
		}
	}
	return false
}

func (c *Compiler) refuseEntries(refused map[*cluster.NetworkPolicy]string) {
	c.bounds.entries.refused = refused
	c.subjects.byNamespace = nil // which policies close whom is another
}

// fitEntries leaves out rules until the tables fit.
func (c *Compiler) fitEntries(snapshot *cluster.Snapshot, local *Local, again func() (*Tables, []Problem)) (*Tables, []Problem) {
	b := &c.bounds.entries
	tables, problems := again()
	switch empty := c.emptier(tables); {
	case empty && b.pace.waits():
		b.pace.postponed = true
	case empty:
		b.pace.looking = true
		c.refuseEntries(nil)
		tables, problems = again()
	}
	before := len(b.refused)
	tables, problems = c.refuseChanged(tables, problems, again)
	var rounds []map[*cluster.NetworkPolicy]string
	for round := range entryRounds + 1 {
		refused := c.tooMany(tables, round)
		if len(refused) == 0 {
			break
		}
		b.pace.looking = true
		rounds = append(rounds, maps.Clone(refused))
		maps.Copy(refused, b.refused)
		c.refuseEntries(refused)
		tables, problems = again()
	}
	for n := range min(len(rounds)-1, entryReturns) {
		tables, problems = c.takeBack(rounds[n], tables, problems, again)
	}
	if len(b.refused) > before {
		b.policies, b.locals = snapshot.NetworkPolicies, local.Pods
		b.needed, b.sorts = len(tables.Policies)+len(tables.Ports), c.peers.countSorts()
	}
	return tables, problems
}

// takeBack takes back what one round has refused if there is room for it: it may have been enough that those gave way whom a later one found.
func (c *Compiler) takeBack(round map[*cluster.NetworkPolicy]string, tables *Tables, problems []Problem, again func() (*Tables, []Problem)) (*Tables, []Problem) {
	refused := c.bounds.entries.refused
	fewer := maps.Clone(refused)
	maps.DeleteFunc(fewer, func(p *cluster.NetworkPolicy, _ string) bool { return round[p] != "" })
	c.refuseEntries(fewer)
	if t, p := again(); len(c.tooFull(t)) == 0 {
		return t, p
	}
	c.refuseEntries(refused)
	return again()
}

// capacity is how many entries there may be of a table; 0 bounds nothing.
func (b *bounds) capacity(table int) int { return [2]int{b.sizes.Policies, b.sizes.Ports}[table] }

// tooFull gives the tables that have more entries than room.
func (c *Compiler) tooFull(t *Tables) (tables []int) {
	if c.bounds.overfull() {
		tables = append(tables, tablePolicies)
	}
	room := c.bounds.sizes.Ports
	ports := room > 0 && !c.bounds.overfull() && len(t.Ports) > room // otherwise those of the pass before are there
	for _, s := range c.rules.sets {
		ports = ports || room > 0 && s.value.tooLong
	}
	if ports {
		tables = append(tables, tablePorts)
	}
	return tables
}

// tooMany gives the policies that have to go for the tables to fit, or to come nearer to it; none if they do.
func (c *Compiler) tooMany(t *Tables, round int) map[*cluster.NetworkPolicy]string {
	refused := map[*cluster.NetworkPolicy]string{}
	var d *demands
	for _, table := range c.tooFull(t) {
		capacity := c.bounds.capacity(table)
		if d == nil {
			d = c.demands()
		}
		switch {
		case round == entryRounds:
			d.refuse(refused, table, 0) // whatever it is that does not fit
		case d.sum(table) > capacity:
			d.refuse(refused, table, capacity)
		default:
			c.refuseSplitters(refused, d, round >= lastHalf)
		}
	}
	return refused
}
