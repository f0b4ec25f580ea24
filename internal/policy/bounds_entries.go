package policy

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	fair "github.com/beeline-cni/beeline/internal/share"
)

// entryBounds keep the rules of one namespace from taking the room of others in Tables.Policies and Tables.Ports. What rules need there shows
// when they are compiled: a pass that needs too much is made again without those that need most.
type entryBounds struct {
	// refused are the policies whose rules are left out, each with the reason: whom they select is closed.
	refused map[*cluster.NetworkPolicy]string
	// policies and locals are those that this was decided for, and needed is how many entries were left then.
	policies []*cluster.NetworkPolicy
	locals   []LocalPod
	needed   int
}

// entryRounds is how often a pass is made again; the limit of whoever needs most is at most half of what it was.
const entryRounds = 12

// reconsider forgets what was refused when something has changed that may have made room.
func (c *Compiler) reconsider(snapshot *cluster.Snapshot, local *Local) {
	b := &c.bounds.entries
	same := cluster.Same(b.policies, snapshot.NetworkPolicies) && slices.EqualFunc(b.locals, local.Pods, func(x, y LocalPod) bool { return x.Pod == y.Pod && x.UID == y.UID })
	const quarters = 4
	if left := len(c.last.Policies) + len(c.last.Ports); same && left*quarters >= b.needed*(quarters-1) {
		return
	}
	b.policies, b.locals = snapshot.NetworkPolicies, local.Pods
	c.refuseEntries(nil)
}

func (c *Compiler) refuseEntries(refused map[*cluster.NetworkPolicy]string) {
	if len(refused)+len(c.bounds.entries.refused) == 0 {
		return
	}
	c.bounds.entries.refused = refused
	c.subjects.byNamespace = nil // which policies close whom is another
}

// fitEntries leaves out rules until the tables fit.
func (c *Compiler) fitEntries(tables *Tables, problems []Problem, again func() (*Tables, []Problem)) (*Tables, []Problem) {
	for range entryRounds {
		refused := c.tooMany(tables)
		if len(refused) == 0 {
			break
		}
		for p, reason := range c.bounds.entries.refused {
			refused[p] = reason
		}
		c.refuseEntries(refused)
		tables, problems = again()
	}
	c.bounds.entries.needed = len(tables.Policies) + len(tables.Ports)
	return tables, problems
}

// demand is how many entries a set needs in each table.
type demand [2]int

// The tables that are shared by namespaces.
const (
	tablePolicies = iota
	tablePorts
)

var boundedTables = [2]string{tablePolicies: "policies", tablePorts: "policy_ports"}

// tooMany gives the policies that have to go for the tables to fit, or to come nearer to it; none if they do.
func (c *Compiler) tooMany(t *Tables) map[*cluster.NetworkPolicy]string {
	room := demand{c.bounds.sizes.Policies, c.bounds.sizes.Ports}
	over := demand{len(t.Policies), len(t.Ports)}
	for _, s := range c.rules.sets {
		if s.value.tooLong {
			over[tablePorts] = max(over[tablePorts], room[tablePorts]+1)
		}
	}
	refused := map[*cluster.NetworkPolicy]string{}
	var demands map[*numbered[*set]]demand
	for table, capacity := range room {
		if capacity == 0 || over[table] <= capacity {
			continue
		}
		if demands == nil {
			demands = c.demands()
		}
		c.refuse(refused, demands, table, capacity)
	}
	return refused
}

// demands gives what each set would need if there were no rules but those of its namespace. Rules of others tell apart pods that are alike to
// it, and so make more entries of its own: that is not its doing.
func (c *Compiler) demands() map[*numbered[*set]]demand {
	all := map[*numbered[*set]]demand{}
	type seen struct {
		set  *numbered[*set]
		sort content
	}
	sorts, lists := map[seen]bool{}, map[*set]map[*numbered[portList]]bool{}
	take := func(s *numbered[*set], list *numbered[portList]) {
		if lists[s.value] == nil {
			lists[s.value] = map[*numbered[portList]]bool{}
		}
		if !lists[s.value][list] {
			lists[s.value][list] = true
			d := all[s]
			d[tablePorts] += len(list.value)
			all[s] = d
		}
	}
	for _, s := range c.rules.sets {
		d := demand{}
		if len(s.value.unknown.value) > 0 {
			d[tablePolicies]++
		}
		if s.value.pods.content != s.value.unknown.content {
			d[tablePolicies]++
		}
		if s.value.tooLong {
			d[tablePorts] = c.bounds.sizes.Ports + 1
		}
		all[s] = d
		take(s, s.value.unknown)
		take(s, s.value.pods)
	}
	for i := range c.used {
		sortFor := map[string]content{}
		for _, e := range i.value.entries {
			namespace := e.set.value.namespace()
			sort, known := sortFor[namespace]
			if !known {
				sort = i.value.sortFor(namespace)
				sortFor[namespace] = sort
			}
			if at := (seen{e.set, sort}); !sorts[at] {
				sorts[at] = true
				d := all[e.set]
				d[tablePolicies]++
				all[e.set] = d
			}
			take(e.set, e.ports)
		}
	}
	return all
}

// namespace is that of the set's policies; empty if it has no rules.
func (s *set) namespace() string {
	if len(s.rules) == 0 {
		return ""
	}
	return s.rules[0].rule.policy.Namespace
}

// sortFor is what the rules of a namespace tell of an identity.
func (i *identity) sortFor(namespace string) content {
	d := newDigest("sort")
	for _, of := range i.met {
		if slices.ContainsFunc(of.sets, func(s *numbered[*set]) bool { return s.value.namespace() == namespace }) {
			d.bytes(of.content[:])
		}
	}
	for _, p := range i.ports {
		d.text(p.name)
		d.number(uint64(p.protocol)<<16 | uint64(p.number))
	}
	return d.content()
}

// refuse adds the policies of the namespaces that need most of a table. Within a namespace policies have theirs by the order of their names.
func (c *Compiler) refuse(refused map[*cluster.NetworkPolicy]string, demands map[*numbered[*set]]demand, table, capacity int) {
	spaces, sum, most := map[string]int{}, 0, 0
	for s, d := range demands {
		spaces[s.value.namespace()] += d[table]
		sum += d[table]
	}
	var wanted []int
	for _, n := range spaces {
		wanted = append(wanted, n)
		most = max(most, n)
	}
	limit := most / 2 // each has few, and together they tell apart so many that it does not fit
	if sum > capacity {
		limit = fair.Limit(capacity, wanted)
	}
	setsOf, policies := c.setsByPolicy()
	had, charged := map[string]int{}, map[*numbered[*set]]bool{}
	for _, p := range policies {
		if spaces[p.Namespace] <= limit {
			continue
		}
		need := 0
		for _, s := range setsOf[p] {
			if !charged[s] {
				need += demands[s][table]
			}
		}
		if had[p.Namespace]+need > limit {
			refused[p] = fmt.Sprintf("its rules do not fit: namespace %q asks for %d entries of the table %s, and there is room for %d (--policies-max)",
				p.Namespace, spaces[p.Namespace], boundedTables[table], limit)
			need = 0
		}
		had[p.Namespace] += need
		for _, s := range setsOf[p] {
			charged[s] = true // what is refused closes the pods that have the set, and nobody needs it
		}
	}
}

// setsByPolicy gives the sets in force in which policies have rules, and these policies sorted by name.
func (c *Compiler) setsByPolicy() (map[*cluster.NetworkPolicy][]*numbered[*set], []*cluster.NetworkPolicy) {
	named := map[cluster.Key]*cluster.NetworkPolicy{}
	for _, s := range c.subjects.used {
		for _, p := range s.policies {
			named[p.policy.Key()] = p.policy
		}
	}
	setsOf := map[*cluster.NetworkPolicy][]*numbered[*set]{}
	var policies []*cluster.NetworkPolicy
	for _, s := range c.rules.sets {
		for _, r := range s.value.rules {
			p := named[r.rule.policy]
			if of := setsOf[p]; len(of) == 0 {
				policies = append(policies, p)
			} else if of[len(of)-1] == s {
				continue
			}
			setsOf[p] = append(setsOf[p], s)
		}
	}
	slices.SortFunc(policies, func(a, b *cluster.NetworkPolicy) int { return a.Key().Compare(b.Key()) })
	return setsOf, policies
}
