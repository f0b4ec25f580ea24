package policy

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// blockClass is a class of addresses that are in the same lists of blocks.
type blockClass struct {
	// met are the conditions of these lists, sorted by content.
	met []*condition
}

// noBlock is the class of addresses that are in no prefix.
var noBlock = &blockClass{}

// blockList is an active list of blocks of one family.
type blockList struct {
	condition *condition
	rule      *rule
}

// partition divides the addresses of a family into classes.
type partition struct {
	// nodes are all prefixes, sorted, parents before children.
	nodes []partitionNode
}

type partitionNode struct {
	prefix netip.Prefix
	parent int32 // index in nodes; -1 for none
	class  *blockClass
}

// edge marks a prefix where addresses enter a block (delta 1) or an exception of one (delta -1).
type edge struct {
	prefix netip.Prefix
	list   int32
	delta  int32
}

// newPartition makes the partition of lists, which are sorted by the content of their conditions. An address may be in several
// blocks of a list, and an exception of one block may be inside another.
func newPartition(lists []blockList, f family) *partition {
	edges := make([]edge, 0, edgesOf(lists))
	inside := make([]int32, len(lists)) // how many blocks of each list contain the current prefix
	for i, l := range lists {
		for _, peer := range l.rule.blocks {
			if familyOf(peer.Block.Addr()) != f {
				continue
			}
			edges = append(edges, edge{peer.Block, int32(i), 1})
			for _, except := range outermost(peer.Except) {
				if except.Bits() >= peer.Block.Bits() && peer.Block.Contains(except.Addr()) {
					edges = append(edges, edge{except, int32(i), -1})
				}
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return comparePrefixes(a.prefix, b.prefix) })

	s := &partition{nodes: make([]partitionNode, 0, len(edges))}
	classes := newClasses(lists)
	type level struct {
		partitionNode int32
		edges         []edge
	}
	var above []level
	var toggled []int32
	for len(edges) > 0 {
		prefix := edges[0].prefix
		end := 1
		for end < len(edges) && edges[end].prefix == prefix {
			end++
		}
		here := edges[:end]
		edges = edges[end:]
		for len(above) > 0 && !s.nodes[above[len(above)-1].partitionNode].prefix.Contains(prefix.Addr()) {
			for _, e := range above[len(above)-1].edges {
				inside[e.list] -= e.delta
			}
			above = above[:len(above)-1]
		}
		at, class := partitionNode{prefix: prefix, parent: -1}, noBlock
		if len(above) > 0 {
			at.parent = above[len(above)-1].partitionNode
			class = s.nodes[at.parent].class
		}
		toggled = toggled[:0]
		for _, e := range here {
			before := inside[e.list] > 0
			inside[e.list] += e.delta
			if (inside[e.list] > 0) != before {
				toggled = append(toggled, e.list)
			}
		}
		at.class = classes.toggle(class, toggled)
		above = append(above, level{int32(len(s.nodes)), here})
		s.nodes = append(s.nodes, at)
	}
	return s
}

// edgesOf estimates the number of edges.
func edgesOf(lists []blockList) (n int) {
	for _, l := range lists {
		n += len(l.rule.blocks)
	}
	return n
}

// outermost returns the prefixes that no other one contains, without duplicates.
func outermost(prefixes []netip.Prefix) []netip.Prefix {
	if len(prefixes) < 2 {
		return prefixes
	}
	sorted := slices.SortedFunc(slices.Values(prefixes), comparePrefixes)
	kept := sorted[:1]
	for _, p := range sorted[1:] {
		if !kept[len(kept)-1].Contains(p.Addr()) {
			kept = append(kept, p)
		}
	}
	return kept
}

// comparePrefixes orders prefixes of one family so that each precedes the prefixes that it contains.
func comparePrefixes(a, b netip.Prefix) int {
	if n := a.Addr().Compare(b.Addr()); n != 0 {
		return n
	}
	return a.Bits() - b.Bits()
}

// classOf returns the class of an address of the partition's family.
func (s *partition) classOf(addr netip.Addr) *blockClass {
	after, _ := slices.BinarySearchFunc(s.nodes, addr, func(p partitionNode, addr netip.Addr) int {
		if p.prefix.Addr().Compare(addr) <= 0 {
			return -1
		}
		return 1
	})
	for i := int32(after) - 1; i >= 0; i = s.nodes[i].parent {
		if s.nodes[i].prefix.Contains(addr) {
			return s.nodes[i].class
		}
	}
	return noBlock
}

// each calls do with every prefix whose class differs from that of its parent.
func (s *partition) each(do func(netip.Prefix, *blockClass)) {
	for i := range s.nodes {
		p := &s.nodes[i]
		around := noBlock
		if p.parent >= 0 {
			around = s.nodes[p.parent].class
		}
		if p.class != around {
			do(p.prefix, p.class)
		}
	}
}

// differ returns the prefixes whose addresses may have another class than in the partition before, which may be nil: those in
// only one of the two, or with other conditions. Prefixes inside another result are left out.
func (s *partition) differ(before *partition) []netip.Prefix {
	was := map[netip.Prefix]*blockClass{}
	if before != nil {
		for i := range before.nodes {
			was[before.nodes[i].prefix] = before.nodes[i].class
		}
	}
	var all []netip.Prefix
	for i := range s.nodes {
		p := &s.nodes[i]
		class, both := was[p.prefix]
		if !both || !slices.Equal(class.met, p.class.met) {
			all = append(all, p.prefix)
		}
		delete(was, p.prefix)
	}
	for prefix := range was {
		all = append(all, prefix)
	}
	return outermost(all)
}

// classes holds one class for each combination of lists.
type classes struct {
	lists []blockList
	known map[string]*blockClass
	// members are the indexes of a class's lists, sorted.
	members map[*blockClass][]int32
	// neighbourKey caches classes that differ from another by one list, as most nested ones do.
	neighbourKey map[neighbourKey]*blockClass
	scratch      []int32
	key          []byte
}

type neighbourKey struct {
	class *blockClass
	list  int32
}

func newClasses(lists []blockList) *classes {
	return &classes{
		lists: lists, known: map[string]*blockClass{"": noBlock},
		members: map[*blockClass][]int32{noBlock: nil}, neighbourKey: map[neighbourKey]*blockClass{},
	}
}

// toggle returns the class that differs from another by these lists: it joins lists that the other is not in and leaves the rest. A list
// that occurs twice stays.
func (c *classes) toggle(from *blockClass, toggled []int32) *blockClass {
	switch len(toggled) {
	case 0:
		return from
	case 1:
		at := neighbourKey{from, toggled[0]}
		class := c.neighbourKey[at]
		if class == nil {
			class = c.combine(from, toggled)
			c.neighbourKey[at] = class
		}
		return class
	}
	return c.combine(from, toggled)
}

// combine merges the members of a class with others and drops members that occur an even number of times.
func (c *classes) combine(from *blockClass, toggled []int32) *blockClass {
	members := append(c.scratch[:0], c.members[from]...)
	members = append(members, toggled...)
	slices.Sort(members)
	kept := members[:0]
	for _, m := range members {
		if n := len(kept); n > 0 && kept[n-1] == m {
			kept = kept[:n-1]
		} else {
			kept = append(kept, m)
		}
	}
	c.scratch, c.key = members, c.key[:0]
	for _, m := range kept {
		c.key = binary.BigEndian.AppendUint32(c.key, uint32(m))
	}
	class := c.known[string(c.key)]
	if class == nil {
		class = &blockClass{met: make([]*condition, 0, len(kept))}
		for _, m := range kept {
			class.met = append(class.met, c.lists[m].condition)
		}
		c.known[string(c.key)], c.members[class] = class, slices.Clone(kept)
	}
	return class
}

// blockTables are the identities of the classes of both partitions, and Tables.Blocks, which is made of them.
type blockTables struct {
	stale      bool // the partitions changed since
	identities map[*blockClass]*numbered[*identity]
	blocks     map[netip.Prefix]Identity
}

// collectBlocks finds the identities of addresses in blocks.
func (c *Compiler) collectBlocks() {
	b := &c.rules.blocks
	if !b.stale {
		for class, i := range b.identities {
			b.identities[class] = c.use(i)
		}
		return
	}
	b.identities = map[*blockClass]*numbered[*identity]{}
	for _, s := range c.rules.spaces {
		s.each(func(_ netip.Prefix, class *blockClass) {
			if b.identities[class] == nil {
				b.identities[class] = c.identity(false, class.met, nil)
			}
		})
	}
}

// fillBlocks makes the table of blocks or reuses the previous one.
func (c *Compiler) fillBlocks(t *Tables) {
	b := &c.rules.blocks
	if b.stale {
		b.stale = false
		numbers := make(map[*blockClass]Identity, len(b.identities))
		for class, i := range b.identities {
			numbers[class] = numberOf(i)
		}
		b.blocks = make(map[netip.Prefix]Identity, len(c.rules.spaces[ipv4].nodes)+len(c.rules.spaces[ipv6].nodes))
		for _, s := range c.rules.spaces {
			s.each(func(prefix netip.Prefix, class *blockClass) { b.blocks[prefix] = numbers[class] })
		}
		b.blocks = share(c.last.Blocks, b.blocks)
	}
	t.Blocks = b.blocks
}
