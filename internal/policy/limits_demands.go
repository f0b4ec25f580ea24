package policy

import (
	"fmt"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	fair "github.com/beeline-cni/beeline/internal/share"
)

// The tables that namespaces share.
const (
	tablePolicies = iota
	tablePorts
)

var limitedTables = [2]string{tablePolicies: "policies", tablePorts: "policy_ports"}

// demands are what each namespace would need alone. Rules of other namespaces split identities that it treats alike and so
// increase its entries; that is not part of its demand (see splits).
type demands struct {
	sets   map[*numbered[*set]]*demand
	spaces map[string]*demand
	// setsOf has the active sets with rules of each policy; policies are sorted by name.
	setsOf   map[*cluster.NetworkPolicy][]*numbered[*set]
	policies []*cluster.NetworkPolicy
	splits   *splits
}

// demand is what sets of one namespace need together.
type demand struct {
	policies int
	lists    map[*numbered[portList]]bool
	ports    int // of lists, and of lists that were not made
	unmade   int
}

func (d *demand) of(table int) int {
	if table == tablePorts {
		return d.ports
	}
	return d.policies
}

func (d *demand) take(list *numbered[portList]) {
	if !d.lists[list] {
		d.lists[list] = true
		d.ports += len(list.value)
	}
}

// add adds another demand. Sets share equal lists.
func (d *demand) add(other *demand) {
	d.policies, d.ports, d.unmade = d.policies+other.policies, d.ports+other.unmade, d.unmade+other.unmade
	for list := range other.lists {
		d.take(list)
	}
}

// with returns what both need together of a table.
func (d *demand) with(other *demand, table int) int {
	if table == tablePolicies {
		return d.policies + other.policies
	}
	ports := d.ports + other.ports
	for list := range other.lists {
		if d.lists[list] {
			ports -= len(list.value)
		}
	}
	return ports
}

func newDemand() *demand { return &demand{lists: map[*numbered[portList]]bool{}} }

func (c *Compiler) demands() *demands {
	all := &demands{sets: map[*numbered[*set]]*demand{}, spaces: map[string]*demand{}, splits: c.splits()}
	for _, s := range c.rules.sets {
		d := newDemand()
		d.policies = s.value.defaultEntries()
		d.take(s.value.unknown)
		d.take(s.value.pods)
		all.sets[s] = d
	}
	for _, g := range all.splits.alike {
		for _, e := range g.entries {
			d := all.sets[e.set]
			d.policies++
			d.take(e.ports)
		}
	}
	for s, d := range all.sets {
		if s.value.tooLong {
			d.unmade = c.limits.sizes.Ports + 1
			d.ports += d.unmade
		}
		namespace := s.value.namespace()
		if all.spaces[namespace] == nil {
			all.spaces[namespace] = newDemand()
		}
		all.spaces[namespace].add(d)
	}
	all.setsOf, all.policies = c.setsByPolicy()
	return all
}

// sum returns what all namespaces need of a table.
func (d *demands) sum(table int) (sum int) {
	for _, space := range d.spaces {
		sum += space.of(table)
	}
	return sum
}

// reject adds policies of the namespaces that need more of a table than the limit. Within a namespace policies are accepted in
// the order of their names.
func (d *demands) reject(rejected map[*cluster.NetworkPolicy]string, table, capacity int) {
	var wanted []int
	for _, space := range d.spaces {
		wanted = append(wanted, space.of(table))
	}
	limit := fair.Limit(capacity, wanted)
	had, charged := map[string]*demand{}, map[*numbered[*set]]bool{}
	for _, p := range d.policies {
		space := d.spaces[p.Namespace]
		if space.of(table) <= limit {
			continue
		}
		need := newDemand()
		for _, s := range d.setsOf[p] {
			if !charged[s] {
				need.add(d.sets[s])
			}
			charged[s] = true // a rejected policy isolates the pods with the set, which then needs nothing
		}
		if had[p.Namespace] == nil {
			had[p.Namespace] = newDemand()
		}
		if had[p.Namespace].with(need, table) <= limit {
			had[p.Namespace].add(need)
			continue
		}
		rejected[p] = fmt.Sprintf("its rules exceed the capacity: namespace %q needs %d entries of the table %s, its share is %d (--policies-max)",
			p.Namespace, space.of(table), limitedTables[table], limit)
	}
}

// namespace returns that of the set's policies; empty if it has no rules.
func (s *set) namespace() string {
	if len(s.rules) == 0 {
		return ""
	}
	return s.rules[0].rule.policy.Namespace
}

// setsByPolicy returns the active sets with rules of each policy, and these policies sorted by name.
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
