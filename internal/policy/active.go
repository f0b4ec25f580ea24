package policy

import "slices"

// activeRules are the sets of this node's pods and the properties of peers that these sets match.
type activeRules struct {
	// generation increases whenever the sets change.
	generation    uint64
	sets          []*numbered[*set] // sorted by content
	requested     map[namedPort][]*numbered[*set]
	selectorIndex *selectorIndex
	lists         [2][]blockList
	spaces        [2]*partition
	blocks        blockTables
}

// reset drops everything: no pod is selected.
func (r *activeRules) reset() { *r = activeRules{generation: r.generation + 1} }

// collectRules updates the active sets and the conditions, ports and blocks that they match.
func (c *Compiler) collectRules() {
	r := &c.rules
	if !slices.Equal(r.sets, c.subjects.sets) || r.selectorIndex == nil {
		r.generation++
		r.sets = slices.Clone(c.subjects.sets)
		for _, s := range r.sets {
			s.value.enter(r.generation)
		}
		c.collectSpaces()
		c.ask()
	}
	var changed bool
	for f := range r.lists {
		lists := c.lists(family(f))
		if r.spaces[f] == nil || !slices.Equal(r.lists[f], lists) {
			before := r.spaces[f]
			r.lists[f], r.spaces[f] = lists, newPartition(lists, family(f))
			c.peers.movedPrefixes = append(c.peers.movedPrefixes, r.spaces[f].differ(before)...)
			changed = true
		}
	}
	if changed {
		r.blocks.stale = true
	}
}

// collectSpaces limits the ports of the active sets by namespace.
func (c *Compiler) collectSpaces() {
	if c.limits.sizes.Ports == 0 {
		return
	}
	spaces := map[string]*portBudget{}
	for _, s := range c.rules.sets {
		namespace := s.value.namespace()
		if spaces[namespace] == nil {
			spaces[namespace] = &portBudget{most: c.limits.sizes.Ports}
		}
		s.value.space = spaces[namespace]
		s.value.space.sets = append(s.value.space.sets, s)
	}
	for _, space := range spaces {
		space.length = space.inUse(c.portLists.pass)
	}
}

// ask finds the conditions that the sets request, and the sets that request each.
func (c *Compiler) ask() {
	r := &c.rules
	for _, condition := range c.conditions.all {
		condition.sets = nil
	}
	askedBefore := r.requested
	r.requested = map[namedPort][]*numbered[*set]{}
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
		for _, name := range s.value.requested {
			if of := r.requested[name]; len(of) == 0 || of[len(of)-1] != s {
				r.requested[name] = append(of, s)
			}
		}
	}
	slices.SortFunc(selectors, compareConditions)
	for _, requested := range [][2]map[namedPort][]*numbered[*set]{{askedBefore, r.requested}, {r.requested, askedBefore}} {
		for name := range requested[0] {
			if len(requested[1][name]) == 0 {
				c.peers.requestPort(name)
			}
		}
	}
	var before []*condition
	if r.selectorIndex != nil {
		before = r.selectorIndex.selectors
	}
	if r.selectorIndex == nil || !slices.Equal(before, selectors) {
		r.selectorIndex = newSelectorIndex(selectors)
	}
	c.peers.ask(before, selectors)
}

// lists returns the block lists of a family that active sets request.
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
