package policy

import (
	"bytes"
	"cmp"
	"iter"
	"net/netip"
	"slices"
)

// peerParts is how many parts the identities of pods are divided into, in groups of groupParts.
const (
	peerParts  = 4096
	groupParts = 64
)

// Peers are identities of pods by their addresses, in parts: a part in which nothing has changed is shared with the Peers before, and so is a group of
// parts. So a pod that comes or goes costs one part and two lists of 64, and not a table of 150,000 addresses. Nobody changes Peers; nil has none.
type Peers struct {
	groups [peerParts / groupParts]*peerGroup // nil: no part of it has an address
	length int
}

type peerGroup [groupParts]*peerPart

// peerPart is sorted by address. It has no pointers that a collection of garbage would follow.
type peerPart []peerIdentity

// peerIdentity is an address with its identity, in 20 bytes.
type peerIdentity struct {
	address  addressKey
	identity Identity
}

func (p peerIdentity) compare(address addressKey) int { return bytes.Compare(p.address[:], address[:]) }

// partOf gives the part that an address is in: by a checksum (FNV-1a) of its 16 bytes.
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

// group gives that of a part.
func (p *Peers) group(at int) *peerGroup {
	if p == nil {
		return nil
	}
	return p.groups[at/groupParts]
}

// Get gives the identity of an address, if it is a pod's.
func (p *Peers) Get(addr netip.Addr) (identity Identity, known bool) {
	address := addressKey(addr.As16())
	part := p.part(partOf(address))
	at, known := slices.BinarySearchFunc(part, address, peerIdentity.compare)
	if !known {
		return IdentityUnknown, false
	}
	return part[at].identity, true
}

// Len counts addresses.
func (p *Peers) Len() int {
	if p == nil {
		return 0
	}
	return p.length
}

// All gives each address with its identity, in no order.
func (p *Peers) All() iter.Seq2[netip.Addr, Identity] {
	return func(yield func(netip.Addr, Identity) bool) {
		for d := range p.Since(nil) {
			if !yield(d.Address, d.Now) {
				return
			}
		}
	}
}

// PeerDifference is an address that has another identity than before. IdentityUnknown is that of an address without any.
type PeerDifference struct {
	Address     netip.Addr
	Before, Now Identity
}

// Since gives what differs from other Peers. It passes over the parts that both have.
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

// differ goes through two parts side by side. It returns false if yield does.
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

// With gives Peers with other identities for some addresses; IdentityUnknown leaves one out. Parts that stay as they were are shared; if all do,
// so are the Peers.
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
		if own == p.group(at) { // else it is a copy already
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
