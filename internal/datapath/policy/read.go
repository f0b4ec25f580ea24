package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// remember reads what the maps hold, once.
func (p *Table) remember() error {
	if p.read.Load() {
		return nil
	}
	err := errors.Join(p.pods.remember(), p.identities.remember(), p.blocks.remember(), p.policies.remember(), p.ports.remember())
	if err != nil {
		return err
	}
	p.singles.has = map[netip.Addr]policy.Identity{} // divide knows them, and the pods
	p.wanted = maps.Clone(p.pods.has)                // until a Sync knows better
	if err := p.beginRevisions(); err != nil {
		return err
	}
	p.read.Store(true)
	return nil
}

// begin does the same for those who do not hold mu.
func (p *Table) begin() error {
	if p.read.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remember()
}

// Knows tells whether the tables, as the maps have them, say something of one of these addresses: that it is a pod that policies select, or
// who is behind it. It waits for a Sync.
func (p *Table) Knows(addresses []netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.remember() != nil {
		return true // nobody knows
	}
	p.podsMu.Lock()
	defer p.podsMu.Unlock()
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		a = a.Unmap()
		_, governed := p.pods.has[a]
		_, identity := p.known(a)
		return governed || identity
	})
}

// beginRevisions counts revisions from behind those that sessions bear, if `generation` is new.
func (p *Table) beginRevisions() error {
	revision, err := p.generation.At(table.GenerationPolicy)
	if err != nil || revision != 0 {
		return err
	}
	last := uint32(0)
	if err := table.Read(p.sessions, func(_ *bpf.Tuple, s *bpf.CtEntry) { last = max(last, s.Revision) }); err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MapConntrack, err)
	}
	return p.generation.Put(table.GenerationPolicy, last+1)
}

// allIPv4 is in the map whenever an IPv6 prefix holds the form that IPv4 addresses have in maps, as ::/0 does: they are not in
// that ipBlock.
var allIPv4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// guarded gives the blocks that keep IPv4 addresses out of those of IPv6.
func guarded(blocks map[netip.Prefix]policy.Identity) map[netip.Prefix]policy.Identity {
	if _, ok := blocks[allIPv4]; ok || !holdIPv4(blocks) {
		return blocks
	}
	blocks = maps.Clone(blocks)
	blocks[allIPv4] = policy.IdentityUnknown
	return blocks
}

// holdIPv4 tells whether one of the prefixes of IPv6 holds IPv4 addresses as maps have them.
func holdIPv4(blocks map[netip.Prefix]policy.Identity) bool {
	for bits := range bpf.MappedIPv4.Bits() + 1 {
		if _, ok := blocks[netip.PrefixFrom(bpf.MappedIPv4.Addr(), bits).Masked()]; ok {
			return true
		}
	}
	return false
}
