package policy

import (
	"maps"
	"net/netip"
	"slices"
)

// blockTables are the identities of the classes of both partitions, and the Tables made of them.
type blockTables struct {
	stale      bool // the partitions changed since
	classes    []*blockClass
	identities []*numbered[*identity] // of classes
	blocks     map[netip.Prefix]Identity
	singles    map[netip.Addr]Identity // pods included
	// hidden are the singles that are not in shown because they are pods or this node.
	hidden []netip.Addr
	both   map[netip.Addr]bool // the same as a set; nil if unknown
	shown  map[netip.Addr]Identity
	// own are the members of hidden that are this node's, sorted; whole is blocks with them.
	own   []netip.Addr
	whole map[netip.Prefix]Identity
}

// collectBlocks finds the identities of addresses in blocks.
func (c *Compiler) collectBlocks() {
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

// fillBlocks makes the tables of blocks or reuses the previous ones.
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
		b.hidden, b.shown, b.both = nil, b.singles, nil
		b.own, b.whole = nil, b.blocks
	}
	hidden := b.hiddenIn(t, c.peers.dirty)
	if !slices.Equal(hidden, b.hidden) {
		b.hidden, b.shown = hidden, make(map[netip.Addr]Identity, len(b.singles))
		for addr, identity := range b.singles {
			if !b.both[addr] {
				b.shown[addr] = identity
			}
		}
	}
	b.showOwn(t.Identities, c.last.Blocks)
	t.Blocks, t.Singles = b.whole, b.shown
}

// hiddenIn returns the singles that are pods or this node, sorted. For addresses that are not dirty it reuses the previous
// result.
func (b *blockTables) hiddenIn(t *Tables, dirty map[netip.Addr]bool) []netip.Addr {
	look := func(addr netip.Addr) {
		_, own := t.Identities[addr]
		_, pod := t.Peers.Get(addr)
		_, single := b.singles[addr]
		if single && (own || pod) {
			b.both[addr] = true
		} else {
			delete(b.both, addr)
		}
	}
	if b.both == nil {
		b.both = map[netip.Addr]bool{}
		for addr := range b.singles {
			look(addr)
		}
	} else {
		for addr := range dirty {
			look(addr)
		}
	}
	return slices.SortedFunc(maps.Keys(b.both), netip.Addr.Compare)
}

// showOwn adds the singles that are addresses of this node to Blocks: a packet with such a source that the node only forwards
// is looked up there alone.
func (b *blockTables) showOwn(identities map[netip.Addr]Identity, last map[netip.Prefix]Identity) {
	var own []netip.Addr
	for _, addr := range b.hidden {
		if identities[addr] == IdentityNode {
			own = append(own, addr)
		}
	}
	if slices.Equal(own, b.own) {
		return
	}
	b.own, b.whole = own, b.blocks
	if len(own) == 0 {
		return
	}
	b.whole = maps.Clone(b.blocks)
	for _, addr := range own {
		b.whole[netip.PrefixFrom(addr, addr.BitLen())] = b.singles[addr]
	}
	b.whole = share(last, b.whole)
}
