package policy

import (
	"bytes"
	"cmp"
	"iter"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/sorted"
)

// Peers are the identities of pods by address. Peers are immutable and share most of their memory with the previous ones: a
// changed pod costs some kilobytes, not a table of 150,000 addresses. nil is empty.
type Peers struct {
	list peerList
}

type peerList = sorted.List[addressKey, peerIdentity]

// peerIdentity is an address with its identity, in 20 bytes without pointers for the garbage collector to follow.
type peerIdentity struct {
	address  addressKey
	identity Identity
}

// Key returns the address.
func (p peerIdentity) Key() addressKey { return p.address }

// Compare orders addresses.
func (k addressKey) Compare(other addressKey) int { return bytes.Compare(k[:], other[:]) }

func (p *Peers) entries() peerList {
	if p == nil {
		return peerList{}
	}
	return p.list
}

// Get returns the identity of an address, if it is a pod's.
func (p *Peers) Get(addr netip.Addr) (identity Identity, known bool) {
	entry, known := p.entries().Find(addr.As16())
	return entry.identity, known
}

// Len counts the addresses.
func (p *Peers) Len() int { return p.entries().Len() }

// All iterates over the addresses with their identities.
func (p *Peers) All() iter.Seq2[netip.Addr, Identity] {
	return func(yield func(netip.Addr, Identity) bool) {
		for entry := range p.entries().All() {
			if !yield(entry.address.address(), entry.identity) {
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

// Since iterates over the differences to other Peers. It skips what both share.
func (p *Peers) Since(before *Peers) iter.Seq[PeerDifference] {
	return func(yield func(PeerDifference) bool) {
		for was, is := range sorted.Differences(before.entries(), p.entries()) {
			if !yield(PeerDifference{cmp.Or(was.address, is.address).address(), was.identity, is.identity}) {
				return
			}
		}
	}
}

// With returns Peers with other identities for some addresses; IdentityUnknown removes one. Without a change it returns p.
func (p *Peers) With(identities map[netip.Addr]Identity) *Peers {
	changes := map[addressKey]peerIdentity{}
	for addr, identity := range identities {
		if before, _ := p.Get(addr); before == identity {
			continue
		}
		address := addressKey(addr.As16())
		if changes[address] = (peerIdentity{}); identity != IdentityUnknown {
			changes[address] = peerIdentity{address, identity}
		}
	}
	if len(changes) == 0 {
		return p
	}
	return &Peers{p.entries().With(changes)}
}
