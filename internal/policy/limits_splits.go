package policy

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// splits are the properties of identities that each namespace matches.
type splits struct {
	seed maphash.Seed
	// names are the namespaces with active sets, sorted; namespaceOf is the index of a set's.
	names       []string
	namespaceOf map[*numbered[*set]]int
	conditions  map[*condition]*requested
	ports       map[containerPort]*requested

	// parts are the numbers of an identity's parts, by its own number. numbers are the numbers of parts, spaces the namespaces of
	// parts by their numbers.
	parts   [][]int
	numbers map[part]int
	spaces  []int
	alike   map[part]*alike
}

// requested is a property that rules match: a random key, and the namespaces whose rules match it, sorted.
type requested struct {
	key    uint64
	spaces []int
}

// part is the properties of an identity that a namespace matches, as a sum of their keys. Equal sums are equal properties.
type part struct {
	space int
	sum   uint64
}

// alike are identities that a namespace treats alike: its sets have an entry for each of them, where one would do.
type alike struct {
	identities []int
	sum        uint64 // of keys of the identities
	// entries are those of the first identity; the others have the same.
	entries []entry
}

// splits finds what the namespaces make of the identities that have entries in this pass.
func (c *Compiler) splits() *splits {
	s := &splits{
		seed: maphash.MakeSeed(), namespaceOf: map[*numbered[*set]]int{},
		conditions: map[*condition]*requested{}, ports: map[containerPort]*requested{},
		numbers: map[part]int{}, alike: map[part]*alike{},
	}
	for _, set := range c.rules.sets {
		s.names = append(s.names, set.value.namespace())
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	for _, set := range c.rules.sets {
		s.namespaceOf[set], _ = slices.BinarySearch(s.names, set.value.namespace())
	}
	of := c.used
	if c.limits.entries.part != nil {
		of = c.limits.entries.part
	}
	sums := make([]uint64, len(s.names))
	for i := range of {
		if len(i.value.entries) > 0 {
			s.take(i.value, c.rules.requested, sums)
		}
	}
	return s
}

func (s *splits) requested(key uint64, sets []*numbered[*set]) *requested {
	var spaces []int
	for _, set := range sets {
		spaces = append(spaces, s.namespaceOf[set])
	}
	slices.Sort(spaces)
	spaces = slices.Compact(spaces)
	return &requested{key, spaces}
}

// take adds an identity. sums is scratch memory for those of all namespaces.
func (s *splits) take(i *identity, named map[namedPort][]*numbered[*set], sums []uint64) {
	kind := maphash.Comparable(s.seed, i.pod)
	for n := range sums {
		sums[n] = kind
	}
	var spaces []int // that match any property
	add := func(of *requested) {
		for _, n := range of.spaces {
			sums[n] += of.key
		}
		spaces = append(spaces, of.spaces...)
	}
	for _, of := range i.met {
		if s.conditions[of] == nil {
			s.conditions[of] = s.requested(maphash.Comparable(s.seed, of.content), of.sets)
		}
		add(s.conditions[of])
	}
	for _, p := range i.ports {
		if s.ports[p] == nil {
			s.ports[p] = s.requested(maphash.Comparable(s.seed, p), named[p.namedPort])
		}
		add(s.ports[p])
	}
	slices.Sort(spaces)
	spaces = slices.Compact(spaces)
	parts := make([]int, 0, len(spaces))
	for _, n := range spaces {
		at := part{n, sums[n]}
		number, known := s.numbers[at]
		if !known {
			number = len(s.spaces)
			s.numbers[at], s.spaces = number, append(s.spaces, n)
		}
		parts = append(parts, number)
	}
	nth := len(s.parts)
	s.parts = append(s.parts, parts)
	key := maphash.Comparable(s.seed, nth)
	for _, e := range i.entries {
		n := s.namespaceOf[e.set]
		g := s.alike[part{n, sums[n]}]
		if g == nil {
			g = &alike{}
			s.alike[part{n, sums[n]}] = g
		}
		if last := len(g.identities) - 1; last < 0 || g.identities[last] != nth {
			g.identities, g.sum = append(g.identities, nth), g.sum+key
		}
		if len(g.identities) == 1 {
			g.entries = append(g.entries, e)
		}
	}
}

// rejectSplitters adds policies of namespaces that split identities which others treat alike. Each namespace would fit alone,
// and so would all that split nothing; none of the latter is rejected.
func (c *Compiler) rejectSplitters(rejected map[*cluster.NetworkPolicy]string, d *demands, whole bool) {
	cost := d.splits.splitCosts()
	most := slices.Max(append(cost, 0))
	asking := map[int][]*cluster.NetworkPolicy{}
	for _, p := range d.policies {
		if n, _ := slices.BinarySearch(d.splits.names, p.Namespace); cost[n] > most/2 && d.asks(p) {
			asking[n] = append(asking[n], p)
		}
	}
	for n, policies := range asking {
		keep := len(policies) / 2
		if whole {
			keep = 0
		}
		for _, p := range policies[keep:] {
			rejected[p] = fmt.Sprintf("its rules exceed the capacity: namespace %q needs %d entries of the table %s, including those that its selectors add to others' rules; all namespaces together need more than the capacity of %d (--policies-max)",
				p.Namespace, cost[n]+d.spaces[p.Namespace].policies, limitedTables[tablePolicies], c.limits.sizes.Policies)
		}
	}
}

// asks reports whether a policy has active rules that match properties of peers.
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

// splitCosts returns, by namespace, its share of the entries that sets have only because rules of other namespaces split
// identities. Every namespace that splits a group of alike identities gets a share by the number of classes that it alone would
// make of them. So two that split alike share the cost, even by different labels. Every such entry is charged: without costs
// there are no more entries than the namespaces' own demands.
func (s *splits) splitCosts() []int {
	// Groups that are alike to one namespace are alike to most others.
	identities, sets := map[uint64][]int{}, map[uint64]int{}
	for _, g := range s.alike {
		identities[g.sum] = g.identities
		sets[g.sum] += len(g.entries)
	}
	costs := make([]int, len(s.names))
	seen := make([]uint64, len(s.spaces)) // the last group with a part
	// How many parts of a namespace a group has, and how many of its identities have one.
	parts, having := make([]int, len(s.names)), make([]int, len(s.names))
	group := uint64(0)
	for of, all := range identities {
		group++
		var spaces []int
		for _, nth := range all {
			for _, number := range s.parts[nth] {
				n := s.spaces[number]
				if having[n]++; having[n] == 1 {
					spaces = append(spaces, n)
				}
				if seen[number] != group {
					seen[number] = group
					parts[n]++
				}
			}
		}
		sum := 0
		for _, n := range spaces {
			if having[n] == len(all) {
				parts[n]-- // no identity is without one
			}
			sum += parts[n]
		}
		more := sets[of] * (len(all) - 1)
		for _, n := range spaces {
			if more > 0 && parts[n] > 0 {
				costs[n] += max(1, more*parts[n]<<costBits/sum)
			}
			parts[n], having[n] = 0, 0
		}
	}
	for n, cost := range costs {
		costs[n] = (cost + 1<<costBits - 1) >> costBits
	}
	return costs
}

// costBits is the fixed-point precision of costs: for small groups a share is a fraction of an entry.
const costBits = 20
