package policy

import (
	"iter"
	"maps"
	"net/netip"
)

// PeerParts is how many parts the identities of pods are divided into.
const PeerParts = 4096

// Peers are identities of pods by their addresses, in parts (PartOf): a part in which nothing has changed is the same map as before. So a pod that
// comes or goes costs one part, and not a table of 150,000 addresses. nil has none. Nobody changes it once it is in Tables.
type Peers [PeerParts]map[netip.Addr]Identity

// PartOf gives the part that an address is in: by a checksum (FNV-1a) of its 16 bytes.
func PartOf(addr netip.Addr) int {
	sum := uint32(2166136261)
	for _, b := range addr.As16() {
		sum = (sum ^ uint32(b)) * 16777619
	}
	return int((sum ^ sum>>16) % PeerParts)
}

// Get gives the identity of an address, if it is a pod's.
func (p *Peers) Get(addr netip.Addr) (identity Identity, known bool) {
	if p == nil {
		return IdentityUnknown, false
	}
	identity, known = p[PartOf(addr)][addr]
	return identity, known
}

// Len counts addresses.
func (p *Peers) Len() (n int) {
	if p == nil {
		return 0
	}
	for _, part := range p {
		n += len(part)
	}
	return n
}

// All gives each address with its identity, in no order.
func (p *Peers) All() iter.Seq2[netip.Addr, Identity] {
	return func(yield func(netip.Addr, Identity) bool) {
		if p == nil {
			return
		}
		for _, part := range p {
			for addr, identity := range part {
				if !yield(addr, identity) {
					return
				}
			}
		}
	}
}

// with gives Peers with other identities for some addresses: those that say that an address has none leave it out. What is as it
// was is shared; if all is, so are the Peers.
func (p *Peers) with(changes map[netip.Addr]*numbered[*identity]) *Peers {
	var now *Peers
	var own [PeerParts]bool
	for addr, of := range changes {
		at := PartOf(addr)
		before, known := p.Get(addr)
		if of == nil && !known || of != nil && known && before == numberOf(of) {
			continue
		}
		if now == nil {
			now = &Peers{}
			if p != nil {
				*now = *p
			}
		}
		if !own[at] {
			own[at] = true
			if now[at] = maps.Clone(now[at]); now[at] == nil {
				now[at] = make(map[netip.Addr]Identity, len(changes)/PeerParts)
			}
		}
		if of == nil {
			delete(now[at], addr)
		} else {
			now[at][addr] = numberOf(of)
		}
	}
	if now == nil {
		return p
	}
	return now
}
