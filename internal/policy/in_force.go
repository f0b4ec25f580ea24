package policy

import "slices"

// rulesInForce are the sets of the pods of this node, and what these ask of peers.
type rulesInForce struct {
	// generation is counted up when the sets change.
	generation uint64
	sets       []*numbered[*set] // sorted by content
	asked      map[namedPort][]*numbered[*set]
	choice     *choice
	lists      [2][]blockList
	spaces     [2]*space
	blocks     blockTables
}

// forget begins anew; nobody is left for whom there are rules.
func (r *rulesInForce) forget() { *r = rulesInForce{generation: r.generation + 1} }

// takeRules notes which sets are in force, and finds what they ask of peers.
func (c *Compiler) takeRules() {
	r := &c.rules
	if !slices.Equal(r.sets, c.subjects.sets) || r.choice == nil {
		r.generation++
		r.sets = slices.Clone(c.subjects.sets)
		for _, s := range r.sets {
			s.value.enter(r.generation)
		}
		c.takeSpaces()
		c.ask()
	}
	if len(r.choice.classes) > maxKnown {
		r.choice = newChoice(r.choice.selectors)
	}
	var changed bool
	for f := range r.lists {
		lists := c.lists(family(f))
		if r.spaces[f] == nil || !slices.Equal(r.lists[f], lists) {
			before := r.spaces[f]
			r.lists[f], r.spaces[f] = lists, divide(lists, family(f))
			c.peers.moved = append(c.peers.moved, r.spaces[f].differ(before)...)
			changed = true
		}
	}
	if changed {
		r.blocks.stale = true
	}
}

// takeSpaces bounds the ports of the sets in force by their namespaces.
func (c *Compiler) takeSpaces() {
	if c.bounds.sizes.Ports == 0 {
		return
	}
	spaces := map[string]*portSpace{}
	for _, s := range c.rules.sets {
		namespace := s.value.namespace()
		if spaces[namespace] == nil {
			spaces[namespace] = &portSpace{most: c.bounds.sizes.Ports}
		}
		s.value.space = spaces[namespace]
		s.value.space.sets = append(s.value.space.sets, s)
	}
	for _, space := range spaces {
		space.length = space.inUse(c.portLists.pass)
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
	askedBefore := r.asked
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
	for _, asked := range [][2]map[namedPort][]*numbered[*set]{{askedBefore, r.asked}, {r.asked, askedBefore}} {
		for name := range asked[0] {
			if len(asked[1][name]) == 0 {
				c.peers.askPort(name)
			}
		}
	}
	var before []*condition
	if r.choice != nil {
		before = r.choice.selectors
	}
	if r.choice == nil || !slices.Equal(before, selectors) {
		r.choice = newChoice(selectors)
	}
	c.peers.ask(before, selectors)
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
