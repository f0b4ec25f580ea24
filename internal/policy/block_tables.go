package policy

import "net/netip"

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
