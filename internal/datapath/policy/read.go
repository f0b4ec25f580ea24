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

// readMaps reads the maps, once. The caller holds mu.
func (p *Table) readMaps() error {
	if p.read.Load() {
		return nil
	}
	err := errors.Join(p.pods.load(), p.identities.load(), p.blocks.load(), p.policies.load(), p.ports.load())
	if err != nil {
		return err
	}
	p.wanted = maps.Clone(p.pods.has) // until the first Sync
	if err := p.initRevision(); err != nil {
		return err
	}
	p.read.Store(true)
	return nil
}

// ensureRead is readMaps for callers that do not hold mu.
func (p *Table) ensureRead() error {
	if p.read.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readMaps()
}

// HasAny reports whether the maps have an entry for one of these addresses: as a selected pod, or with an identity. It
// waits for a Sync.
func (p *Table) HasAny(addresses []netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readMaps() != nil {
		return true // assume that they do
	}
	p.podsMu.Lock()
	defer p.podsMu.Unlock()
	return slices.ContainsFunc(addresses, func(a netip.Addr) bool {
		a = a.Unmap()
		_, selected := p.pods.has[a]
		_, identity := p.identities.known(a)
		return selected || identity
	})
}

// initRevision starts the revision after those in conntrack entries, if `generation` is new.
func (p *Table) initRevision() error {
	revision, err := p.generation.At(table.GenerationPolicy)
	if err != nil || revision != 0 {
		return err
	}
	last := uint32(0)
	if err := table.Read(p.conntrack, func(_ *bpf.Tuple, s *bpf.CtEntry) { last = max(last, s.Revision) }); err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MapConntrack, err)
	}
	return p.generation.Put(table.GenerationPolicy, last+1)
}

// allIPv4 is in the map whenever an IPv6 prefix contains the IPv4-mapped addresses, as ::/0 does: IPv4 addresses do
// not belong to that ipBlock.
var allIPv4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// guarded adds allIPv4 where it is needed to keep IPv4 addresses out of IPv6 ipBlocks.
func guarded(blocks map[netip.Prefix]policy.Identity) map[netip.Prefix]policy.Identity {
	if _, ok := blocks[allIPv4]; ok || !holdIPv4(blocks) {
		return blocks
	}
	blocks = maps.Clone(blocks)
	blocks[allIPv4] = policy.IdentityUnknown
	return blocks
}

// holdIPv4 reports whether one of the IPv6 prefixes contains the IPv4-mapped addresses.
func holdIPv4(blocks map[netip.Prefix]policy.Identity) bool {
	for bits := range bpf.MappedIPv4.Bits() + 1 {
		if _, ok := blocks[netip.PrefixFrom(bpf.MappedIPv4.Addr(), bits).Masked()]; ok {
			return true
		}
	}
	return false
}
