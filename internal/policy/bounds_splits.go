package policy

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// splits tell which namespaces ask for what identities have.
type splits struct {
	seed maphash.Seed
	// names are the namespaces with sets in force, sorted; spaceOf is the index of that of a set.
	names      []string
	spaceOf    map[*numbered[*set]]int
	conditions map[*condition]*asked
	ports      map[containerPort]*asked
	// parties are the namespaces that ask for the same things, and partyOf is the index of each.
	parties [][]int
	partyOf map[string]int
}

// asked is something that rules ask for: a number for it that nobody can choose, and whose rules do.
type asked struct {
	key   uint64
	party int
}

// traits are what an identity has, as sums of keys: all of it, by namespace what that one asks for, and by party what that one asks for and
// nobody else. Equal sums are equal traits.
type traits struct {
	all  uint64
	own  []uint64
	only []uint64
	// spaces are the namespaces that ask for any, parties the parties; sorted, each once.
	spaces, parties []int
}

func (c *Compiler) splits() *splits {
	s := &splits{
		seed: maphash.MakeSeed(), spaceOf: map[*numbered[*set]]int{},
		conditions: map[*condition]*asked{}, ports: map[containerPort]*asked{}, partyOf: map[string]int{},
	}
	for _, set := range c.rules.sets {
		s.names = append(s.names, set.value.namespace())
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	for _, set := range c.rules.sets {
		s.spaceOf[set], _ = slices.BinarySearch(s.names, set.value.namespace())
	}
	return s
}

func (s *splits) asked(key uint64, sets []*numbered[*set]) *asked {
	var spaces []int
	for _, set := range sets {
		spaces = append(spaces, s.spaceOf[set])
	}
	slices.Sort(spaces)
	spaces = slices.Compact(spaces)
	var name []byte
	for _, n := range spaces {
		name = binary.AppendUvarint(name, uint64(n))
	}
	party, known := s.partyOf[string(name)]
	if !known {
		party = len(s.parties)
		s.parties, s.partyOf[string(name)] = append(s.parties, spaces), party
	}
	return &asked{key, party}
}

// eachIdentity calls do with the identities that this pass has made entries of. traits are good for the call.
func (c *Compiler) eachIdentity(s *splits, do func(*identity, *traits)) {
	of := c.used
	if c.bounds.entries.part != nil {
		of = c.bounds.entries.part
	}
	t := &traits{own: make([]uint64, len(s.names))}
	for i := range of {
		if len(i.value.entries) == 0 {
			continue
		}
		kind := maphash.Comparable(s.seed, i.value.pod)
		t.all, t.spaces, t.parties = kind, t.spaces[:0], t.parties[:0]
		for n := range t.own {
			t.own[n] = kind
		}
		clear(t.only)
		for _, of := range i.value.met {
			if s.conditions[of] == nil {
				s.conditions[of] = s.asked(maphash.Comparable(s.seed, of.content), of.sets)
			}
			s.add(t, s.conditions[of])
		}
		for _, p := range i.value.ports {
			if s.ports[p] == nil {
				s.ports[p] = s.asked(maphash.Comparable(s.seed, p), c.rules.asked[p.namedPort])
			}
			s.add(t, s.ports[p])
		}
		slices.Sort(t.spaces)
		t.spaces = slices.Compact(t.spaces)
		slices.Sort(t.parties)
		t.parties = slices.Compact(t.parties)
		do(i.value, t)
	}
}

func (s *splits) add(t *traits, a *asked) {
	t.all += a.key
	for _, n := range s.parties[a.party] {
		t.own[n] += a.key
	}
	t.spaces = append(t.spaces, s.parties[a.party]...)
	t.parties = append(t.parties, a.party)
	if more := len(s.parties) - len(t.only); more > 0 {
		t.only = append(t.only, make([]uint64, more)...)
	}
	t.only[a.party] += a.key
}

// refuseSplitters adds policies of namespaces that tell apart what is alike to others. Each would fit if the others were not there, and so would
// all that tell nothing apart: none of these gives way.
func (c *Compiler) refuseSplitters(refused map[*cluster.NetworkPolicy]string, d *demands, whole bool) {
	splitters, cost := c.splitters(d.splits), c.splitCosts(d.splits)
	most := 0
	for n, name := range d.splits.names {
		if cost[n] += d.spaces[name].policies; splitters[n] {
			most = max(most, cost[n])
		}
	}
	asking := map[int][]*cluster.NetworkPolicy{}
	for _, p := range d.policies {
		if n, _ := slices.BinarySearch(d.splits.names, p.Namespace); splitters[n] && cost[n] > most/2 && d.asks(p) {
			asking[n] = append(asking[n], p)
		}
	}
	for n, policies := range asking {
		keep := len(policies) / 2
		if whole {
			keep = 0
		}
		for _, p := range policies[keep:] {
			refused[p] = fmt.Sprintf("its rules do not fit: namespace %q asks for %d entries of the table %s, with those that its selectors make of others' rules, and all together for more than there is room for: %d (--policies-max)",
				p.Namespace, cost[n], boundedTables[tablePolicies], c.bounds.sizes.Policies)
		}
	}
}

// asks tells whether a policy has rules in force that tell peers apart.
func (d *demands) asks(p *cluster.NetworkPolicy) bool {
	key := p.Key()
	return slices.ContainsFunc(d.setsOf[p], func(s *numbered[*set]) bool {
		return slices.ContainsFunc(s.value.rules, func(r *setRule) (asks bool) {
			if r.rule.policy != key {
				return false
			}
			r.eachCondition(func(*condition) { asks = true })
			return asks || len(r.named) > 0
		})
	})
}

// part is what one namespace asks for of what an identity has.
type part struct {
	space int
	own   uint64
}

// splitters tells, by namespace, which ones tell apart identities that are alike to the rules of another that have entries for them. Without any,
// there are no more entries than namespaces need for themselves.
func (c *Compiler) splitters(s *splits) []bool {
	type group struct {
		set  *numbered[*set]
		sort uint64
	}
	splitters, first := make([]bool, len(s.names)), map[group][]part{}
	c.eachIdentity(s, func(i *identity, t *traits) {
		parts := make([]part, 0, len(t.spaces))
		for _, n := range t.spaces {
			parts = append(parts, part{n, t.own[n]})
		}
		for _, e := range i.entries {
			at := group{e.set, t.own[s.spaceOf[e.set]]}
			if others, known := first[at]; known {
				eachOther(parts, others, func(space int) { splitters[space] = true })
			} else {
				first[at] = parts
			}
		}
	})
	return splitters
}

// eachOther calls do with the namespaces of which two lists, sorted by them, have different parts.
func eachOther(a, b []part, do func(space int)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(a) > 0 && len(b) > 0 && a[0] == b[0]:
			a, b = a[1:], b[1:]
		case len(b) == 0 || len(a) > 0 && a[0].space <= b[0].space:
			do(a[0].space)
			a = a[1:]
		default:
			do(b[0].space)
			b = b[1:]
		}
	}
}

// splitCosts counts, by namespace, the entries that sets of others would not have without what this namespace asks for: identities that
// nothing else tells apart would be one. Where several namespaces ask for the same, each has its part of what that costs those that do not.
func (c *Compiler) splitCosts(s *splits) []int {
	there := map[uint64]bool{}
	c.eachIdentity(s, func(_ *identity, t *traits) { there[t.all] = true })
	type without struct {
		party int
		rest  uint64
	}
	merged, split := map[without]bool{}, make([]int, len(s.parties))
	c.eachIdentity(s, func(i *identity, t *traits) {
		for _, party := range t.parties {
			rest := without{party, t.all - t.only[party]}
			if !there[rest.rest] && !merged[rest] {
				merged[rest] = true
				continue
			}
			for _, e := range i.entries {
				if _, asks := slices.BinarySearch(s.parties[party], s.spaceOf[e.set]); !asks {
					split[party]++
				}
			}
		}
	})
	costs := make([]int, len(s.names))
	for party, spaces := range s.parties {
		for _, n := range spaces {
			costs[n] += (split[party] + len(spaces) - 1) / len(spaces)
		}
	}
	return costs
}
