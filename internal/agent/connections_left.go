package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// leftPods are the addresses of pods that are gone and of which translation may still know connections.
type leftPods struct {
	mu        sync.Mutex
	addresses map[netip.Addr]bool
	// purging is held while the tables are read, which takes as long as they are full.
	purging sync.Mutex
	// forget removes what the tables have of pods with these addresses, and says how many entries.
	forget func([]netip.Addr) (int, error)
	// remembered gives the addresses within some ranges of which it would remove something. looked are those for which it has answered: of any
	// other address, an earlier agent may have left something.
	remembered func([]netip.Prefix) ([]netip.Addr, error)
	looked     []netip.Prefix
}

// findLeftPods takes note, once for the same ranges, of addresses of this node's ranges that the tables know and neither a pod nor somebody else has: an earlier agent may
// have been killed before it had forgotten a pod that was gone.
func (a *Agent) findLeftPods(ranges []netip.Prefix, others []netip.Addr) error {
	l := &a.connections.left
	if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return !slices.Contains(l.looked, p) }) {
		return nil
	}
	found, err := l.remembered(ranges)
	if err != nil {
		return err
	}
	l.looked = slices.Clone(ranges)
	found = slices.DeleteFunc(found, func(addr netip.Addr) bool { return slices.Contains(others, addr) })
	for _, e := range a.endpoints {
		found = slices.DeleteFunc(found, func(addr netip.Addr) bool { return slices.Contains(e.Addresses, addr) })
	}
	if len(found) > 0 {
		a.log.Info("connections of pods that are gone", "addresses", found)
		a.podGone(found)
	}
	return nil
}

// podGone takes note of the addresses of a pod that is gone. It does not block.
func (a *Agent) podGone(addresses []netip.Addr) {
	l := &a.connections.left
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.addresses == nil {
		l.addresses = map[netip.Addr]bool{}
	}
	for _, addr := range addresses {
		l.addresses[addr] = true
	}
	a.connections.wake.Set()
}

// purge forgets all pods that are gone so far. They stay in l until the tables have nothing of them any more.
func (l *leftPods) purge() (removed int, err error) {
	l.purging.Lock()
	defer l.purging.Unlock()
	l.mu.Lock()
	var gone []netip.Addr
	for addr := range l.addresses {
		gone = append(gone, addr)
	}
	l.mu.Unlock()
	if len(gone) == 0 {
		return 0, nil
	}
	slices.SortFunc(gone, netip.Addr.Compare)
	if removed, err = l.forget(gone); err != nil {
		return removed, fmt.Errorf("forget connections of pods that are gone: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, addr := range gone {
		delete(l.addresses, addr)
	}
	return removed, nil
}

// has tells whether one of these addresses is still to be forgotten.
func (l *leftPods) has(addresses []netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(addresses, func(addr netip.Addr) bool { return l.addresses[addr] })
}

// forgetPods forgets the connections of pods that are gone.
func (a *Agent) forgetPods() {
	removed, err := a.connections.left.purge()
	a.connections.expired.Add(uint64(removed))
	if err != nil {
		a.connections.failures.Add(1)
		a.log.Error("connections of pods that are gone stay until their addresses are used again", "error", err)
	}
}

// inheritNothing makes sure that a new pod gets no connections of one that had its addresses before: mostly they are forgotten by then. The lock is held.
func (a *Agent) inheritNothing(addresses []netip.Addr) error {
	looked := a.connections.left.looked
	if others := slices.DeleteFunc(slices.Clone(addresses), func(addr netip.Addr) bool {
		return slices.ContainsFunc(looked, func(p netip.Prefix) bool { return p.Contains(addr) })
	}); len(others) > 0 {
		a.podGone(others)
	}
	if !a.connections.left.has(addresses) {
		return nil
	}
	removed, err := a.connections.left.purge()
	a.connections.expired.Add(uint64(removed))
	return err
}
