package policy

import (
	"net/netip"
	"slices"
)

// rules are what is in force: the sets of the pods of this node, and what these ask of peers.
type rules struct {
	// generation is counted up when the sets change.
	generation uint64
	sets       []*numbered[*set] // sorted by content
	asked      map[namedPort][]*numbered[*set]
	choice     *choice
	lists      [2][]blockList
	spaces     [2]*space
	blocks     blockTables
}

// blockTables are the classes of the spaces with their identities, and what Tables have of them.
type blockTables struct {
	stale      bool // the spaces have changed since
	classes    []*blockClass
	identities []*numbered[*identity] // of classes
	blocks     map[netip.Prefix]Identity
	singles    map[netip.Addr]Identity // also those that are pods
	// hidden are the singles that are left out of shown for being pods or this node.
	hidden []netip.Addr
	shown  map[netip.Addr]Identity
}

// forget begins anew; nobody is left for whom there are rules.
func (r *rules) forget() { *r = rules{generation: r.generation + 1} }

// takeRules notes which sets are in force, and finds what they ask of peers.
func (c *Compiler) takeRules() {
	r := &c.rules
	if !slices.Equal(r.sets, c.subjects.sets) || r.choice == nil {
		r.generation++
		r.sets = slices.Clone(c.subjects.sets)
		for _, s := range r.sets {
			s.value.enter(r.generation)
		}
		c.ask()
	}
	var changed bool
	for f := range r.lists {
		lists := c.lists(family(f))
		if r.spaces[f] == nil || !slices.Equal(r.lists[f], lists) {
			r.lists[f], r.spaces[f] = lists, divide(lists, family(f))
			changed = true
		}
	}
	if changed {
		r.blocks.stale = true
		c.peers.known = nil
	}
	if c.peers.known == nil || len(c.peers.known) > maxKnown {
		c.peers.known = map[peerKey]*numbered[*identity]{}
	}
}

// maxKnown bounds what is remembered of pods that may not be there any more.
const maxKnown = 1 << 17

// ask finds the conditions that sets ask for, and the sets that ask for each.
func (c *Compiler) ask() {
	r := &c.rules
	for _, condition := range c.conditions.all {
		condition.sets = nil
	}
	r.asked = map[namedPort][]*numbered[*set]{}
	var selectors []*condition
	for _, s := range r.sets {
		s.value.eachCondition(func(of *condition) {
			if len(of.sets) == 0 && of.selector != nil {
				selectors = append(selectors, of)
			}
			if len(of.sets) == 0 || of.sets[len(of.sets)-1] != s {
				of.sets = append(of.sets, s)
			}
		})
		for _, name := range s.value.asked {
			if of := r.asked[name]; len(of) == 0 || of[len(of)-1] != s {
				r.asked[name] = append(of, s)
			}
		}
	}
	slices.SortFunc(selectors, compareConditions)
	if r.choice == nil || !slices.Equal(r.choice.selectors, selectors) || len(r.choice.classes) > maxKnown {
		r.choice = newChoice(selectors)
		c.peers.known = nil
	}
}

// lists gives the lists of blocks of a family that sets in force ask for.
func (c *Compiler) lists(f family) (lists []blockList) {
	var policies []*policyRules
	for _, s := range c.subjects.used {
		policies = append(policies, s.policies...)
	}
	seen := map[*policyRules]bool{}
	for _, p := range policies {
		if seen[p] {
			continue
		}
		seen[p] = true
		for _, rules := range p.rules {
			for _, rule := range rules {
				if list := rule.lists[f]; list != nil && len(list.sets) > 0 {
					lists = append(lists, blockList{list, rule})
				}
			}
		}
	}
	slices.SortFunc(lists, func(a, b blockList) int { return compareConditions(a.condition, b.condition) })
	return lists
}

// takeBlocks finds the identities of addresses in blocks.
func (c *Compiler) takeBlocks() {
	b := &c.rules.blocks
	if b.stale {
		b.classes, b.identities = nil, nil
		seen := map[*blockClass]bool{}
		for _, s := range c.rules.spaces {
			s.each(func(_ netip.Prefix, class *blockClass) {
				if !seen[class] {
					seen[class] = true
					b.classes = append(b.classes, class)
					b.identities = append(b.identities, c.identity(false, class.met, nil))
				}
			})
		}
		return
	}
	for i := range b.identities {
		b.identities[i] = c.use(b.identities[i])
	}
}

// fillBlocks makes the tables of blocks, or gives those that there are.
func (c *Compiler) fillBlocks(t *Tables) {
	b := &c.rules.blocks
	if b.stale {
		b.stale = false
		numbers := make(map[*blockClass]Identity, len(b.classes))
		for i, class := range b.classes {
			numbers[class] = numberOf(b.identities[i])
		}
		var prefixes, singles int
		for _, s := range c.rules.spaces {
			s.each(func(prefix netip.Prefix, _ *blockClass) {
				if prefix.IsSingleIP() {
					singles++
				} else {
					prefixes++
				}
			})
		}
		b.blocks, b.singles = make(map[netip.Prefix]Identity, prefixes), make(map[netip.Addr]Identity, singles)
		for _, s := range c.rules.spaces {
			s.each(func(prefix netip.Prefix, class *blockClass) {
				if prefix.IsSingleIP() {
					b.singles[prefix.Addr()] = numbers[class]
				} else {
					b.blocks[prefix] = numbers[class]
				}
			})
		}
		b.blocks, b.singles = share(c.last.Blocks, b.blocks), share(c.last.Singles, b.singles)
		b.hidden, b.shown = nil, b.singles
	}
	var hidden []netip.Addr
	if len(b.singles) > 0 {
		for addr := range t.Identities {
			if _, both := b.singles[addr]; both {
				hidden = append(hidden, addr)
			}
		}
		slices.SortFunc(hidden, netip.Addr.Compare)
	}
	if !slices.Equal(hidden, b.hidden) {
		b.hidden, b.shown = hidden, make(map[netip.Addr]Identity, len(b.singles))
		for addr, identity := range b.singles {
			if _, both := t.Identities[addr]; !both {
				b.shown[addr] = identity
			}
		}
	}
	t.Blocks, t.Singles = b.blocks, b.shown
}
