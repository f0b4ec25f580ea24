package policy

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// peerTable is the part of the map of identities for pods. Unlike policyTable it shares the desired state instead of
// copying it.
type peerTable struct {
	m *ebpf.Map
	// has are the entries of the map for pods. unknown are entries with the unknown identity, which exclude an
	// address from ipBlocks, whose address is now a pod's.
	has     *policy.Peers
	unknown map[netip.Addr]bool
	// complete says that the last write left nothing out.
	complete bool
}

// write writes the entries that differ, as policyTable.write does.
func (t *peerTable) write(want *policy.Peers) (w written[netip.Addr]) {
	t.complete = true
	var differ []policy.PeerDifference
	gone := map[netip.Addr]policy.Identity{}
	for d := range want.Since(t.has) {
		if d.Now == policy.IdentityUnknown {
			gone[d.Address] = d.Before
		} else {
			differ = append(differ, d)
		}
	}
	rest := t.put(differ, &w)
	if t.complete = len(rest) == 0; !t.complete {
		t.keep(differ[:len(differ)-len(rest)])
		var changed []policy.PeerDifference // these need no free entry
		for _, d := range rest {
			if t.holds(d) {
				changed = append(changed, d)
			} else {
				w.missing = append(w.missing, d.Address)
			}
		}
		left := t.put(changed, &w)
		t.keep(changed[:len(changed)-len(left)])
		for _, d := range left {
			w.missing = append(w.missing, d.Address)
		}
	} else if len(differ) > 0 {
		t.has = want.With(gone)
		for _, d := range differ {
			delete(t.unknown, d.Address)
		}
	}
	return w
}

// holds reports whether the map has another entry for an address.
func (t *peerTable) holds(d policy.PeerDifference) bool {
	return d.Before != policy.IdentityUnknown || t.unknown[d.Address]
}

// put writes entries in order until one fails and returns the rest.
func (t *peerTable) put(differ []policy.PeerDifference, w *written[netip.Addr]) (rest []policy.PeerDifference) {
	entries := table.Writes[bpf.Address, uint32]{M: t.m}
	for _, d := range differ {
		entries.Add(bpf.AddressOf(d.Address), uint32(d.Now))
	}
	done, err := entries.Do()
	if err != nil {
		w.err = errors.Join(w.err, table.FullOr(bpf.MapIdentities, t.m, err, nil))
	}
	for _, d := range differ[:done] {
		if t.holds(d) {
			w.changed++
		} else {
			w.added++
		}
	}
	return differ[done:]
}

// keep records that the map now has these entries.
func (t *peerTable) keep(done []policy.PeerDifference) {
	identities := make(map[netip.Addr]policy.Identity, len(done))
	for _, d := range done {
		identities[d.Address] = d.Now
		delete(t.unknown, d.Address)
	}
	t.has = t.has.With(identities)
}

// trim deletes unwanted entries, after write, and returns how many.
func (t *peerTable) trim(want *policy.Peers) (deleted int, err error) {
	var unwanted []policy.PeerDifference
	var keys []bpf.Address
	for d := range want.Since(t.has) {
		if d.Now == policy.IdentityUnknown {
			unwanted, keys = append(unwanted, d), append(keys, bpf.AddressOf(d.Address))
		}
	}
	for a := range t.unknown {
		if _, wanted := want.Get(a); !wanted {
			unwanted, keys = append(unwanted, policy.PeerDifference{Address: a}), append(keys, bpf.AddressOf(a))
		}
	}
	for deleted < len(keys) && err == nil {
		var n int
		n, err = deleteBatch(t.m, keys[deleted:min(deleted+table.BatchSize, len(keys))])
		deleted += n
	}
	if t.complete && err == nil {
		t.has = want
		clear(t.unknown)
		return deleted, nil
	}
	t.keep(unwanted[:deleted])
	if err != nil {
		err = fmt.Errorf("delete from map %s: %w", bpf.MapIdentities, err)
	}
	return deleted, err
}

// divide assigns the addresses of the map to the parts in which the tables have them.
func (p *Table) divide(t *policy.Tables) {
	moved := map[netip.Addr]policy.Identity{} // to peers or from them
	take := func(to, from *identityTable, a netip.Addr) {
		if identity, there := from.has[a]; there {
			delete(from.has, a)
			to.has[a] = identity
			from.set, to.set = nil, nil
		} else if identity, there := p.peers.get(a); there {
			moved[a] = policy.IdentityUnknown
			to.has[a], to.set = identity, nil
			delete(p.peers.unknown, a)
		}
	}
	if !p.singles.holds(t.Singles) {
		for a := range t.Singles {
			take(&p.singles, &p.identities, a)
		}
	}
	if !p.identities.holds(t.Identities) {
		for a := range t.Identities {
			take(&p.identities, &p.singles, a)
		}
	}
	for d := range t.Peers.Since(p.peers.has) {
		if d.Before != policy.IdentityUnknown {
			continue
		}
		for _, from := range []*identityTable{&p.singles, &p.identities} {
			if identity, there := from.has[d.Address]; there {
				delete(from.has, d.Address)
				from.set, moved[d.Address] = nil, identity
				if identity == policy.IdentityUnknown {
					p.peers.unknown[d.Address] = true
				}
			}
		}
	}
	p.peers.has = p.peers.has.With(moved)
}

// add adds the result for another part of a table.
func (w *written[K]) add(other written[K]) {
	w.changed, w.added = w.changed+other.changed, w.added+other.added
	w.missing = append(w.missing, other.missing...)
	w.err = errors.Join(w.err, other.err)
}

// known is the identity of an address in the map.
func (p *Table) known(a netip.Addr) (policy.Identity, bool) {
	for _, part := range []*identityTable{&p.identities, &p.singles} {
		if identity, ok := part.has[a]; ok {
			return identity, true
		}
	}
	return p.peers.get(a)
}

// get is the identity of an address in this part of the map.
func (t *peerTable) get(a netip.Addr) (policy.Identity, bool) {
	identity, known := t.has.Get(a)
	return identity, known || t.unknown[a]
}
