package policy

import (
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
}

// asked is something that rules ask for: a number for it that nobody can choose, and the namespaces whose rules do, sorted.
type asked struct {
	key    uint64
	spaces []int
}

// traits are what an identity has, by namespace, as a sum of the keys of what that one asks for. Equal sums are equal traits.
type traits struct {
	own []uint64
	// spaces are the namespaces that ask for any, sorted, each once.
	spaces []int
}

func (c *Compiler) splits() *splits {
	s := &splits{
		seed: maphash.MakeSeed(), spaceOf: map[*numbered[*set]]int{},
		conditions: map[*condition]*asked{}, ports: map[containerPort]*asked{},
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
	return &asked{key, spaces}
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
		t.spaces = t.spaces[:0]
		for n := range t.own {
			t.own[n] = kind
		}
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
		do(i.value, t)
	}
}

func (s *splits) add(t *traits, a *asked) {
	for _, n := range a.spaces {
		t.own[n] += a.key
	}
	t.spaces = append(t.spaces, a.spaces...)
}

// refuseSplitters adds policies of namespaces that tell apart what is alike to others. Each would fit if the others were not there, and so would
// all that tell nothing apart: none of these gives way.
func (c *Compiler) refuseSplitters(refused map[*cluster.NetworkPolicy]string, d *demands, whole bool) {
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
			refused[p] = fmt.Sprintf("its rules do not fit: namespace %q asks for %d entries of the table %s, with those that its selectors make of others' rules, and all together for more than there is room for: %d (--policies-max)",
				p.Namespace, cost[n]+d.spaces[p.Namespace].policies, boundedTables[tablePolicies], c.bounds.sizes.Policies)
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

// alike are identities that the rules of some namespaces do not tell apart, by a number of each: sets of these have an entry for each of them, where
// one would do.
type alike struct {
	identities []int
	sum        uint64
	sets       int
}

// splitCosts gives, by namespace, its part of the entries that sets have only since rules of other namespaces tell identities apart. Each of those
// that tell apart some that are alike has a part by the number of sorts that it alone would make of them. So it does not matter whether another one
// tells apart the same, be it by labels of other names. What nobody is charged for there is none of: without any costs there are no more entries
// than namespaces need for themselves.
func (c *Compiler) splitCosts(s *splits) []int {
	of := charges{numbers: map[part]int{}, costs: make([]int, len(s.names))}
	groups := map[part]*alike{}
	c.eachIdentity(s, func(i *identity, t *traits) {
		nth := of.take(t)
		key := maphash.Comparable(s.seed, nth)
		for _, e := range i.entries {
			n := s.spaceOf[e.set]
			g := groups[part{n, t.own[n]}]
			if g == nil {
				g = &alike{}
				groups[part{n, t.own[n]}] = g
			}
			if last := len(g.identities) - 1; last < 0 || g.identities[last] != nth {
				g.identities, g.sum = append(g.identities, nth), g.sum+key
			}
			g.sets++ // as many for each of the identities
		}
	})
	// What is alike to one namespace is to most others, too.
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

// costBits is the precision of costs while they are added up: of small groups each has a part of an entry.
const costBits = 20

// charges divide costs among those who cause them.
type charges struct {
	// parts have what an identity has, by its number: numbers of parts, of which spaces are the namespaces.
	parts   [][]int
	numbers map[part]int
	spaces  []int
	costs   []int
	// seen has the last group that has a part. sorts and having are how many parts of a namespace a group has, and how many of its identities have one.
	seen          []int
	sorts, having []int
	group         int
}

// take takes in an identity and gives its number.
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
	d.seen, d.sorts, d.having = make([]int, len(d.spaces)), make([]int, len(d.costs)), make([]int, len(d.costs))
}

// charge adds to the costs of namespaces what comes of telling these identities apart.
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
				d.sorts[n]++
			}
		}
	}
	sum := 0
	for _, n := range spaces {
		if d.having[n] == len(g.identities) {
			d.sorts[n]-- // nobody has nothing of it
		}
		sum += d.sorts[n]
	}
	more := g.sets * (len(g.identities) - 1)
	for _, n := range spaces {
		if d.sorts[n] > 0 {
			d.costs[n] += max(1, more*d.sorts[n]<<costBits/sum)
		}
		d.sorts[n], d.having[n] = 0, 0
	}
}
