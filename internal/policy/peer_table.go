package policy

import (
	"bytes"
	"cmp"
	"iter"
	"net/netip"
	"slices"
)

// peerParts is how many parts a table of peers has, in groups of groupParts.
const (
	peerParts  = 4096
	groupParts = 64
)

// Peers are the identities of pods by address. Peers are immutable and share unchanged parts, and groups of parts, with the
// previous ones: a changed pod costs one part and two lists of 64, not a table of 150,000 addresses. nil is empty.
type Peers struct {
	groups [peerParts / groupParts]*peerGroup // nil: none of its parts has an address
	length int
}

type peerGroup [groupParts]*peerPart

// peerPart is sorted by address. It has no pointers for the garbage collector to follow.
type peerPart []peerIdentity

// peerIdentity is an address with its identity, in 20 bytes.
type peerIdentity struct {
	address  addressKey
	identity Identity
}

func (p peerIdentity) compare(address addressKey) int { return bytes.Compare(p.address[:], address[:]) }

// partOf returns the part of an address, by a hash (FNV-1a) of its 16 bytes.
func partOf(address addressKey) int {
	sum := uint32(2166136261)
	for _, b := range address {
		sum = (sum ^ uint32(b)) * 16777619
	}
	return int((sum ^ sum>>16) % peerParts)
}

func (p *Peers) part(at int) peerPart {
	if group := p.group(at); group != nil && group[at%groupParts] != nil {
		return *group[at%groupParts]
	}
	return nil
}

// group returns the group of a part.
func (p *Peers) group(at int) *peerGroup {
	if p == nil {
		return nil
	}
	return p.groups[at/groupParts]
}

// Get returns the identity of an address, if it is a pod's.
func (p *Peers) Get(addr netip.Addr) (identity Identity, known bool) {
	address := addressKey(addr.As16())
	part := p.part(partOf(address))
	at, known := slices.BinarySearchFunc(part, address, peerIdentity.compare)
	if !known {
		return IdentityUnknown, false
	}
	return part[at].identity, true
}

// Len counts the addresses.
func (p *Peers) Len() int {
	if p == nil {
		return 0
	}
	return p.length
}

// All iterates over the addresses with their identities, unordered.
func (p *Peers) All() iter.Seq2[netip.Addr, Identity] {
	return func(yield func(netip.Addr, Identity) bool) {
		for d := range p.Since(nil) {
			if !yield(d.Address, d.Now) {
				return
			}
		}
	}
}

// PeerDifference is an address whose identity changed. IdentityUnknown means that it has none any more.
type PeerDifference struct {
	Address     netip.Addr
	Before, Now Identity
}

// Since iterates over the differences to other Peers. It skips shared parts.
func (p *Peers) Since(before *Peers) iter.Seq[PeerDifference] {
	return func(yield func(PeerDifference) bool) {
		if p == before {
			return
		}
		for at := 0; at < peerParts; at++ {
			now, then := p.group(at), before.group(at)
			if now == then {
				at += groupParts - 1
				continue
			}
			if now != nil && then != nil && now[at%groupParts] == then[at%groupParts] {
				continue
			}
			if !differ(before.part(at), p.part(at), yield) {
				return
			}
		}
	}
}

// differ compares two parts. It returns false if yield does.
func differ(before, now peerPart, yield func(PeerDifference) bool) bool {
	for len(before) > 0 || len(now) > 0 {
		var d PeerDifference
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = before[0].compare(now[0].address)
		}
		if order <= 0 {
			d.Address, d.Before, before = before[0].address.address(), before[0].identity, before[1:]
		}
		if order >= 0 {
			d.Address, d.Now, now = now[0].address.address(), now[0].identity, now[1:]
		}
		if d.Before != d.Now && !yield(d) {
			return false
		}
	}
	return true
}

// With returns Peers with other identities for some addresses; IdentityUnknown removes one. Unchanged parts are shared; without
// a change it returns p.
func (p *Peers) With(identities map[netip.Addr]Identity) *Peers {
	type change struct {
		at int
		peerIdentity
	}
	var changes []change
	for addr, identity := range identities {
		if before, _ := p.Get(addr); before != identity {
			address := addressKey(addr.As16())
			changes = append(changes, change{partOf(address), peerIdentity{address, identity}})
		}
	}
	if len(changes) == 0 {
		return p
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), a.compare(b.address)) })
	now := &Peers{}
	if p != nil {
		*now = *p
	}
	for len(changes) > 0 {
		at := changes[0].at
		end := slices.IndexFunc(changes, func(c change) bool { return c.at != at })
		if end < 0 {
			end = len(changes)
		}
		before := p.part(at)
		part := make(peerPart, 0, len(before)+end)
		for _, c := range changes[:end] {
			n, known := slices.BinarySearchFunc(before, c.address, peerIdentity.compare)
			part = append(part, before[:n]...)
			if before = before[n:]; known {
				before = before[1:]
			}
			if c.identity != IdentityUnknown {
				part = append(part, c.peerIdentity)
			}
		}
		part = append(part, before...)
		now.length += len(part) - len(p.part(at))
		own := now.group(at)
		if own == p.group(at) { // otherwise it is a copy already
			own = &peerGroup{}
			if shared := p.group(at); shared != nil {
				*own = *shared
			}
			now.groups[at/groupParts] = own
		}
		if own[at%groupParts] = &part; len(part) == 0 {
			own[at%groupParts] = nil
		}
		changes = changes[end:]
	}
	return now
}
