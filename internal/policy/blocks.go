package policy

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// blockClass is addresses that are in the same lists of blocks.
type blockClass struct {
	// met are the conditions to be in these lists, sorted by content.
	met []*condition
}

// nowhere is the class of addresses that are in no prefix.
var nowhere = &blockClass{}

// blockList is a list of blocks of one family that is in force.
type blockList struct {
	condition *condition
	rule      *rule
}

// space is the addresses of a family, divided into classes.
type space struct {
	// places are all prefixes, sorted, parents before what they contain.
	places []place
}

type place struct {
	prefix netip.Prefix
	parent int32 // index in places; -1 for none
	class  *blockClass
}

// edge is where addresses come into a block, or into what is excepted from one.
type edge struct {
	prefix netip.Prefix
	list   int32
	delta  int32
}

// divide makes the space that lists, sorted by the contents of their conditions, divide. An address may be in several blocks of a list, and what one of them excepts may be in another.
func divide(lists []blockList, f family) *space {
	edges := make([]edge, 0, edgesOf(lists))
	inside := make([]int32, len(lists)) // how many blocks of a list the sweep is in
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

	s := &space{places: make([]place, 0, len(edges))}
	classes := newClasses(lists)
	type level struct {
		place int32
		edges []edge
	}
	var above []level
	var turned []int32
	for len(edges) > 0 {
		prefix := edges[0].prefix
		end := 1
		for end < len(edges) && edges[end].prefix == prefix {
			end++
		}
		here := edges[:end]
		edges = edges[end:]
		for len(above) > 0 && !s.places[above[len(above)-1].place].prefix.Contains(prefix.Addr()) {
			for _, e := range above[len(above)-1].edges {
				inside[e.list] -= e.delta
			}
			above = above[:len(above)-1]
		}
		at, class := place{prefix: prefix, parent: -1}, nowhere
		if len(above) > 0 {
			at.parent = above[len(above)-1].place
			class = s.places[at.parent].class
		}
		turned = turned[:0]
		for _, e := range here {
			before := inside[e.list] > 0
			inside[e.list] += e.delta
			if (inside[e.list] > 0) != before {
				turned = append(turned, e.list)
			}
		}
		at.class = classes.turn(class, turned)
		above = append(above, level{int32(len(s.places)), here})
		s.places = append(s.places, at)
	}
	return s
}

// edgesOf gives about how many edges lists have.
func edgesOf(lists []blockList) (n int) {
	for _, l := range lists {
		n += len(l.rule.blocks)
	}
	return n
}

// outermost gives the prefixes that no other contains, each once.
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

// comparePrefixes sorts prefixes of one family such that each comes before those that it contains.
func comparePrefixes(a, b netip.Prefix) int {
	if n := a.Addr().Compare(b.Addr()); n != 0 {
		return n
	}
	return a.Bits() - b.Bits()
}

// classOf gives the class of an address of the space's family.
func (s *space) classOf(addr netip.Addr) *blockClass {
	after, _ := slices.BinarySearchFunc(s.places, addr, func(p place, addr netip.Addr) int {
		if p.prefix.Addr().Compare(addr) <= 0 {
			return -1
		}
		return 1
	})
	for i := int32(after) - 1; i >= 0; i = s.places[i].parent {
		if s.places[i].prefix.Contains(addr) {
			return s.places[i].class
		}
	}
	return nowhere
}

// each calls do with the prefixes that have another class than what they are in.
func (s *space) each(do func(netip.Prefix, *blockClass)) {
	for i := range s.places {
		p := &s.places[i]
		around := nowhere
		if p.parent >= 0 {
			around = s.places[p.parent].class
		}
		if p.class != around {
			do(p.prefix, p.class)
		}
	}
}

// differ gives the prefixes whose addresses may be in another class than in the space before, which may be nil: those that are in one of the two only, or
// in both with other conditions. No more than outermost ones are given.
func (s *space) differ(before *space) []netip.Prefix {
	was := map[netip.Prefix]*blockClass{}
	if before != nil {
		for i := range before.places {
			was[before.places[i].prefix] = before.places[i].class
		}
	}
	var all []netip.Prefix
	for i := range s.places {
		p := &s.places[i]
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

// classes keeps one class for each combination of lists.
type classes struct {
	lists []blockList
	known map[string]*blockClass
	// members are the indices of a class's lists, sorted.
	members map[*blockClass][]int32
	// beside are the classes that differ from another by one list, as almost all do that are within each other.
	beside  map[beside]*blockClass
	scratch []int32
	key     []byte
}

type beside struct {
	class *blockClass
	list  int32
}

func newClasses(lists []blockList) *classes {
	return &classes{
		lists: lists, known: map[string]*blockClass{"": nowhere},
		members: map[*blockClass][]int32{nowhere: nil}, beside: map[beside]*blockClass{},
	}
}

// turn gives the class of addresses that are in those of some lists that another class is not in, and not in those that it is in; a list that is
// there twice has been turned back.
func (c *classes) turn(from *blockClass, turned []int32) *blockClass {
	switch len(turned) {
	case 0:
		return from
	case 1:
		at := beside{from, turned[0]}
		class := c.beside[at]
		if class == nil {
			class = c.combine(from, turned)
			c.beside[at] = class
		}
		return class
	}
	return c.combine(from, turned)
}

// combine merges the members of a class with others, and leaves out what is there an even number of times.
func (c *classes) combine(from *blockClass, turned []int32) *blockClass {
	members := append(c.scratch[:0], c.members[from]...)
	members = append(members, turned...)
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
