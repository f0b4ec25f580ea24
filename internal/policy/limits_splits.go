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
}

// requested is a property that rules match: a random key, and the namespaces whose rules match it, sorted.
type requested struct {
	key    uint64
	spaces []int
}

// traits are the properties of an identity for each namespace, as a sum of the keys that its rules match. Equal sums are equal
// traits.
type traits struct {
	own []uint64
	// spaces are the namespaces that match any property, sorted, without duplicates.
	spaces []int
}

func (c *Compiler) splits() *splits {
	s := &splits{
		seed: maphash.MakeSeed(), namespaceOf: map[*numbered[*set]]int{},
		conditions: map[*condition]*requested{}, ports: map[containerPort]*requested{},
	}
	for _, set := range c.rules.sets {
		s.names = append(s.names, set.value.namespace())
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	for _, set := range c.rules.sets {
		s.namespaceOf[set], _ = slices.BinarySearch(s.names, set.value.namespace())
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

// eachIdentity calls do with the identities that have entries in this pass. traits are valid during the call.
func (c *Compiler) eachIdentity(s *splits, do func(*identity, *traits)) {
	of := c.used
	if c.limits.entries.part != nil {
		of = c.limits.entries.part
	}
	t := &traits{own: make([]uint64, len(s.names))}
	for i := range of {
		if len(i.value.entries) == 0 {
			continue
		}
		kind := maphash.Comparable(s.seed, i.value.pod)
		t.spaces = t.spaces[:0]
		for n := range t.own {
			t.own[n] = kind
		}
		for _, of := range i.value.met {
			if s.conditions[of] == nil {
				s.conditions[of] = s.requested(maphash.Comparable(s.seed, of.content), of.sets)
			}
			s.add(t, s.conditions[of])
		}
		for _, p := range i.value.ports {
			if s.ports[p] == nil {
				s.ports[p] = s.requested(maphash.Comparable(s.seed, p), c.rules.requested[p.namedPort])
			}
			s.add(t, s.ports[p])
		}
		slices.Sort(t.spaces)
		t.spaces = slices.Compact(t.spaces)
		do(i.value, t)
	}
}

func (s *splits) add(t *traits, a *requested) {
	for _, n := range a.spaces {
		t.own[n] += a.key
	}
	t.spaces = append(t.spaces, a.spaces...)
}

// rejectSplitters adds policies of namespaces that split identities which others treat alike. Each namespace would fit alone,
// and so would all that split nothing; none of the latter is rejected.
func (c *Compiler) rejectSplitters(rejected map[*cluster.NetworkPolicy]string, d *demands, whole bool) {
	cost := c.splitCosts(d.splits)
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

// part is the traits of an identity for one namespace.
type part struct {
	space int
	own   uint64
}

// alike are identities that some namespaces treat alike: their sets have an entry for each of them, where one would do.
type alike struct {
	identities []int
	sum        uint64
	sets       int
}

// splitCosts returns, by namespace, its share of the entries that sets have only because rules of other namespaces split
// identities. Every namespace that splits a group of alike identities gets a share by the number of classes that it alone would
// make of them. So two that split alike share the cost, even by different labels. Every such entry is charged: without costs
// there are no more entries than the namespaces' own demands.
func (c *Compiler) splitCosts(s *splits) []int {
	of := charges{numbers: map[part]int{}, costs: make([]int, len(s.names))}
	groups := map[part]*alike{}
	c.eachIdentity(s, func(i *identity, t *traits) {
		nth := of.take(t)
		key := maphash.Comparable(s.seed, nth)
		for _, e := range i.entries {
			n := s.namespaceOf[e.set]
			g := groups[part{n, t.own[n]}]
			if g == nil {
				g = &alike{}
				groups[part{n, t.own[n]}] = g
			}
			if last := len(g.identities) - 1; last < 0 || g.identities[last] != nth {
				g.identities, g.sum = append(g.identities, nth), g.sum+key
			}
			g.sets++ // the same number for each identity
		}
	})
	// Groups that are alike to one namespace are alike to most others.
	same := map[uint64]*alike{}
	for _, g := range groups {
		g.sets /= len(g.identities)
		if known := same[g.sum]; known != nil {
			known.sets += g.sets
		} else {
			same[g.sum] = g
		}
	}
	of.begin()
	for _, g := range same {
		of.charge(g)
	}
	for n, cost := range of.costs {
		of.costs[n] = (cost + 1<<costBits - 1) >> costBits
	}
	return of.costs
}

// costBits is the fixed-point precision of costs: for small groups a share is a fraction of an entry.
const costBits = 20

// charges divide costs among the namespaces that cause them.
type charges struct {
	// parts are the properties of an identity, by its number: numbers of parts; spaces are the namespaces of parts.
	parts   [][]int
	numbers map[part]int
	spaces  []int
	costs   []int
	// seen has the last group with a part. groups and having are how many parts of a namespace a group has, and how many of its
	// identities have one.
	seen           []int
	groups, having []int
	group          int
}

// take adds an identity and returns its number.
func (d *charges) take(t *traits) (nth int) {
	all := make([]int, 0, len(t.spaces))
	for _, n := range t.spaces {
		at := part{n, t.own[n]}
		number, known := d.numbers[at]
		if !known {
			number = len(d.spaces)
			d.numbers[at], d.spaces = number, append(d.spaces, n)
		}
		all = append(all, number)
	}
	d.parts = append(d.parts, all)
	return len(d.parts) - 1
}

func (d *charges) begin() {
	d.seen, d.groups, d.having = make([]int, len(d.spaces)), make([]int, len(d.costs)), make([]int, len(d.costs))
}

// charge adds the cost of splitting these identities to namespaces.
func (d *charges) charge(g *alike) {
	if len(g.identities) < 2 {
		return
	}
	d.group++
	var spaces []int
	for _, nth := range g.identities {
		for _, number := range d.parts[nth] {
			n := d.spaces[number]
			if d.having[n]++; d.having[n] == 1 {
				spaces = append(spaces, n)
			}
			if d.seen[number] != d.group {
				d.seen[number] = d.group
				d.groups[n]++
			}
		}
	}
	sum := 0
	for _, n := range spaces {
		if d.having[n] == len(g.identities) {
			d.groups[n]-- // no identity is without one
		}
		sum += d.groups[n]
	}
	more := g.sets * (len(g.identities) - 1)
	for _, n := range spaces {
		if d.groups[n] > 0 {
			d.costs[n] += max(1, more*d.groups[n]<<costBits/sum)
		}
		d.groups[n], d.having[n] = 0, 0
	}
}
