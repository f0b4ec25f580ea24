package datapath

import (
	"errors"
	"net/netip"

	"github.com/beeline-cni/beeline/internal/policy"
)

// identityTable is a part of the map of identities.
type identityTable = policyTable[netip.Addr, policy.Identity, bpfAddress, uint32]

// peerPart gives what tables have of one part of the pods.
func peerPart(of *policy.Peers, at int) map[netip.Addr]policy.Identity {
	if of == nil {
		return nil
	}
	return of[at]
}

// divide moves addresses to the part of their map that tables have them in.
func (p *Policies) divide(t *policy.Tables) {
	move := func(from, to *identityTable, a netip.Addr) {
		if identity, there := from.has[a]; there {
			from.own()
			to.own()
			delete(from.has, a)
			to.has[a] = identity
			from.set, to.set, p.givenPeers = nil, nil, nil
		}
	}
	partOf := func(a netip.Addr) *identityTable { return &p.peers[policy.PartOf(a)] }
	if !p.singles.holds(t.Singles) {
		for a := range t.Singles {
			move(&p.identities, &p.singles, a)
			move(partOf(a), &p.singles, a)
		}
	}
	if !p.identities.holds(t.Identities) {
		for a := range t.Identities {
			move(&p.singles, &p.identities, a)
			move(partOf(a), &p.identities, a)
		}
	}
	if p.givenPeers != nil && p.givenPeers == t.Peers {
		return
	}
	for at := range p.peers {
		part := peerPart(t.Peers, at)
		if p.peers[at].holds(part) {
			continue
		}
		for a := range part {
			move(&p.singles, &p.peers[at], a)
			move(&p.identities, &p.peers[at], a)
		}
	}
}

// writePeers writes the entries that differ of the parts that do.
func (p *Policies) writePeers(of *policy.Peers) (all written[netip.Addr]) {
	if p.givenPeers != nil && p.givenPeers == of {
		return all
	}
	for at := range p.peers {
		all.add(p.peers[at].write(peerPart(of, at)))
	}
	return all
}

// trimPeers deletes what is not wanted of the parts that differ, after writePeers.
func (p *Policies) trimPeers(of *policy.Peers) (deleted int, err error) {
	if p.givenPeers != nil && p.givenPeers == of {
		return 0, nil
	}
	whole := of != nil
	for at := range p.peers {
		part := &p.peers[at]
		n, e := part.trim(peerPart(of, at))
		deleted, err = deleted+n, errors.Join(err, e)
		whole = whole && part.whole && e == nil
	}
	if p.givenPeers = nil; whole {
		p.givenPeers = of
	}
	return deleted, err
}

// add joins what became of two parts of a table.
func (w *written[K]) add(other written[K]) {
	w.changed, w.added = w.changed+other.changed, w.added+other.added
	w.missing = append(w.missing, other.missing...)
	w.err = errors.Join(w.err, other.err)
}

// known gives the identity of an address as the parts of the map have it.
func (p *Policies) known(a netip.Addr) (policy.Identity, bool) {
	for _, part := range []*identityTable{&p.identities, &p.singles, &p.peers[policy.PartOf(a)]} {
		if identity, ok := part.has[a]; ok {
			return identity, true
		}
	}
	return policy.IdentityUnknown, false
}
