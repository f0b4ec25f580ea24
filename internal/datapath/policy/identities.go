package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// identityTable is the map of identities: those of pods and of this node. Unlike policyTable it shares the desired state
// instead of copying it.
type identityTable struct {
	m *ebpf.Map
	// has are the entries of the map. unknown are addresses with the unknown identity, left by an earlier agent.
	has     *policy.Peers
	unknown []netip.Addr
	// complete says that the last write left nothing out.
	complete bool
}

// load reads the map into has.
func (t *identityTable) load() error {
	all, err := t.all()
	for a, identity := range all {
		if identity == policy.IdentityUnknown {
			t.unknown = append(t.unknown, a)
		}
	}
	t.has = t.has.With(all)
	return err
}

// all reads the map.
func (t *identityTable) all() (map[netip.Addr]policy.Identity, error) {
	all := map[netip.Addr]policy.Identity{}
	err := table.Read(t.m, func(k *bpf.Address, v *uint32) { all[k.Addr()] = policy.Identity(*v) })
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MapIdentities, err)
	}
	return all, nil
}

// write writes the entries that differ, as policyTable.write does.
func (t *identityTable) write(want *policy.Peers) (w written[netip.Addr]) {
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
	}
	return w
}

// put writes entries in order until one fails and returns the rest.
func (t *identityTable) put(differ []policy.PeerDifference, w *written[netip.Addr]) (rest []policy.PeerDifference) {
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

// holds reports whether the map has an entry of an address.
func (t *identityTable) holds(d policy.PeerDifference) bool {
	return d.Before != policy.IdentityUnknown || slices.Contains(t.unknown, d.Address)
}

// keep records that the map now has these entries.
func (t *identityTable) keep(done []policy.PeerDifference) {
	identities := make(map[netip.Addr]policy.Identity, len(done))
	for _, d := range done {
		identities[d.Address] = d.Now
	}
	t.has = t.has.With(identities)
	t.unknown = slices.DeleteFunc(t.unknown, func(a netip.Addr) bool {
		_, written := identities[a]
		return written
	})
}

// trim deletes unwanted entries, after write, and returns how many.
func (t *identityTable) trim(want *policy.Peers) (deleted int, err error) {
	var unwanted []policy.PeerDifference
	for d := range want.Since(t.has) {
		if d.Now == policy.IdentityUnknown {
			unwanted = append(unwanted, d)
		}
	}
	for _, a := range t.unknown {
		if _, wanted := want.Get(a); !wanted {
			unwanted = append(unwanted, policy.PeerDifference{Address: a})
		}
	}
	keys := make([]bpf.Address, len(unwanted))
	for i, d := range unwanted {
		keys[i] = bpf.AddressOf(d.Address)
	}
	for deleted < len(keys) && err == nil {
		var n int
		n, err = deleteBatch(t.m, keys[deleted:min(deleted+table.BatchSize, len(keys))])
		deleted += n
	}
	if err != nil {
		t.keep(unwanted[:deleted])
		return deleted, fmt.Errorf("delete from map %s: %w", bpf.MapIdentities, err)
	}
	if t.complete {
		t.has, t.unknown = want, nil
	} else {
		t.keep(unwanted)
	}
	return deleted, nil
}

// known is the identity of an address in the map.
func (t *identityTable) known(a netip.Addr) (policy.Identity, bool) {
	identity, known := t.has.Get(a)
	return identity, known || slices.Contains(t.unknown, a)
}
