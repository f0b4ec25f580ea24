package policy

import (
	"maps"
	"slices"
)

// entries makes and counts what the active sets allow every identity. Far above the limit, a part of the identities is enough
// to find the namespace that causes it; the part depends on the content of identities, not on previous passes.
func (c *Compiler) entries() {
	b := &c.limits.entries
	b.counted, b.part = c.defaultEntries(), nil
	for i := range c.used {
		c.entriesOf(i.value)
		if b.counted += len(i.value.entries); c.limits.farOverLimit() {
			c.entriesInPart()
			return
		}
	}
}

// entriesInPart makes entries for one identity after the other until they are far over the limit.
func (c *Compiler) entriesInPart() {
	b := &c.limits.entries
	b.counted, b.part = c.defaultEntries(), map[*numbered[*identity]]bool{}
	for _, i := range slices.SortedFunc(maps.Keys(c.used), compareNumbered[*identity]) {
		c.entriesOf(i.value)
		b.part[i] = true
		if b.counted += len(i.value.entries); c.limits.farOverLimit() {
			return
		}
	}
}

// defaultEntries makes and counts what sets allow unknown identities and unknown pods.
func (c *Compiler) defaultEntries() (count int) {
	for _, s := range c.rules.sets {
		c.defaults(s.value)
		count += s.value.defaultEntries()
	}
	return count
}

// defaultEntries is how many entries a set needs for unknown identities and unknown pods.
func (s *set) defaultEntries() (count int) {
	if len(s.unknown.value) > 0 {
		count++
	}
	if s.pods.content != s.unknown.content {
		count++
	}
	return count
}

// defaults makes what a set allows unknown identities and unknown pods.
func (c *Compiler) defaults(s *set) {
	if s.unknown == nil {
		c.mark++
		s.unknown = s.allowed(&peer{mark: c.mark}, c.portLists, &c.scratch)
		s.pods = s.allowed(&peer{mark: c.mark, pod: true}, c.portLists, &c.scratch)
		return
	}
	s.unknown, s.pods = c.portLists.use(s.unknown), c.portLists.use(s.pods)
}

// entriesOf makes what the active sets allow an identity. Only sets whose rules match a property of it have an entry.
func (c *Compiler) entriesOf(i *identity) {
	known, generation := i.generation, c.rules.generation
	if known != generation {
		i.entries = slices.DeleteFunc(i.entries, func(e entry) bool { return e.set.value.until != generation || e.set.value.since > known })
	}
	for n := range i.entries {
		i.entries[n].ports = c.portLists.use(i.entries[n].ports)
	}
	if known == generation {
		return
	}
	i.generation = generation
	c.mark++
	of := peer{pod: i.pod, mark: c.mark, ports: i.ports}
	for _, d := range i.met {
		d.mark = c.mark
	}
	ask := func(s *numbered[*set]) {
		if s.value.seen == c.mark || s.value.since <= known {
			return
		}
		s.value.seen = c.mark
		plain := s.value.unknown
		if i.pod {
			plain = s.value.pods
		}
		if ports := s.value.allowed(&of, c.portLists, &c.scratch); ports.content != plain.content {
			i.entries = append(i.entries, entry{s, ports})
		}
	}
	for _, d := range i.met {
		for _, s := range d.sets {
			ask(s)
		}
	}
	for _, p := range i.ports {
		for _, s := range c.rules.requested[p.namedPort] {
			ask(s)
		}
	}
}

// described are the identities in the policies of the last Tables, for the sets of one generation.
type described struct {
	generation uint64
	identities map[*numbered[*identity]]bool
}

// fillPolicies makes the table of policies from the previous one, because most of it stays. It returns false if all of it does.
func (c *Compiler) fillPolicies(t *Tables) bool {
	before, generation := c.described, c.rules.generation
	c.described = described{generation, c.used}
	table := policiesCopy{of: c.last.Policies}
	// The table has the entries of sets that have been active for longer than since.
	var since uint64
	switch generation {
	case before.generation:
		since = generation + 1
	case before.generation + 1:
		since = generation
		table.keep(c.rules.sets)
	default:
		before.identities = nil
		table = policiesCopy{of: map[Peer]Ports{}, own: true}
	}
	for i := range before.identities {
		if c.used[i] {
			continue
		}
		for _, e := range i.value.entries {
			table.delete(Peer{Set(e.set.number), numberOf(i)})
		}
	}
	for _, s := range c.rules.sets {
		if s.value.since < since {
			continue
		}
		if len(s.value.unknown.value) > 0 {
			table.set(Peer{Set(s.number), IdentityUnknown}, portsNumber(s.value.unknown))
		}
		if s.value.pods.content != s.value.unknown.content {
			table.set(Peer{Set(s.number), IdentityPod}, portsNumber(s.value.pods))
		}
	}
	for i := range c.used {
		known := before.identities[i]
		for _, e := range i.value.entries {
			if !known || e.set.value.since >= since {
				table.set(Peer{Set(e.set.number), numberOf(i)}, portsNumber(e.ports))
			}
		}
	}
	t.Policies = table.of
	return table.own
}

// policiesCopy is a table of policies that is copied on the first write.
type policiesCopy struct {
	of  map[Peer]Ports
	own bool
}

func (p *policiesCopy) change() map[Peer]Ports {
	if p.own {
		return p.of
	}
	if p.of, p.own = maps.Clone(p.of), true; p.of == nil {
		p.of = map[Peer]Ports{}
	}
	return p.of
}

func (p *policiesCopy) set(peer Peer, ports Ports) { p.change()[peer] = ports }
func (p *policiesCopy) delete(peer Peer)           { delete(p.change(), peer) }

// keep deletes the entries of all other sets.
func (p *policiesCopy) keep(sets []*numbered[*set]) {
	numbers := make(map[Set]bool, len(sets))
	for _, s := range sets {
		numbers[Set(s.number)] = true
	}
	maps.DeleteFunc(p.change(), func(peer Peer, _ Ports) bool { return !numbers[peer.Set] })
}
