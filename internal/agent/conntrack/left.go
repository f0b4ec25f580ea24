package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// leftPods are the addresses of pods that are gone and may still have entries.
type leftPods struct {
	mu        sync.Mutex
	addresses map[netip.Addr]bool
	// purging is held while the tables are read, which takes as long as they are full.
	purging sync.Mutex
	// looked are the ranges that FindLeft has looked through. An earlier agent may have left entries of any other address.
	looked []netip.Prefix
}

// FindLeft looks once in each range for addresses with entries that no pod has: an earlier agent may have been killed before it removed
// the entries of a pod that was gone. others are addresses of the node's ranges that are not Beeline's, present those of pods.
func (x *Expiry) FindLeft(ranges []netip.Prefix, others, present []netip.Addr) error {
	l := &x.left
	if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return !slices.Contains(l.looked, p) }) {
		return nil
	}
	found, err := x.kernel.Remembered(ranges)
	if err != nil {
		return err
	}
	l.looked = slices.Clone(ranges)
	found = slices.DeleteFunc(found, func(addr netip.Addr) bool { return slices.Contains(others, addr) || slices.Contains(present, addr) })
	if len(found) > 0 {
		x.log.Info("entries of pods that are gone", "addresses", found)
		x.PodGone(found)
	}
	return nil
}

// PodGone hands over the addresses of a pod that is gone. It does not block.
func (x *Expiry) PodGone(addresses []netip.Addr) {
	l := &x.left
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.addresses == nil {
		l.addresses = map[netip.Addr]bool{}
	}
	for _, addr := range addresses {
		l.addresses[addr] = true
	}
	x.wake.Set()
}

// purge removes the entries of all pods that are gone so far. Their addresses stay in left until the tables have nothing of them.
func (x *Expiry) purge() error {
	l := &x.left
	l.purging.Lock()
	defer l.purging.Unlock()
	l.mu.Lock()
	var gone []netip.Addr
	for addr := range l.addresses {
		gone = append(gone, addr)
	}
	l.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	slices.SortFunc(gone, netip.Addr.Compare)
	removed, err := x.kernel.ForgetPods(gone)
	x.expired.Add(uint64(removed))
	if err != nil {
		return fmt.Errorf("remove entries of pods that are gone: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, addr := range gone {
		delete(l.addresses, addr)
	}
	return nil
}

// HasLeft says whether one of these addresses may still have entries of a pod that is gone.
func (x *Expiry) HasLeft(addresses []netip.Addr) bool {
	x.left.mu.Lock()
	defer x.left.mu.Unlock()
	return slices.ContainsFunc(addresses, func(addr netip.Addr) bool { return x.left.addresses[addr] })
}

// forgetPods removes the entries of pods that are gone.
func (x *Expiry) forgetPods() {
	if err := x.purge(); err != nil {
		x.failures.Add(1)
		x.log.Error("entries of pods that are gone stay until their addresses are used again", "error", err)
	}
}

// Clear makes sure that a new pod inherits no entries of one that had its addresses before. Mostly there are none by then. Calls of Clear
// and FindLeft do not overlap.
func (x *Expiry) Clear(addresses []netip.Addr) error {
	looked := x.left.looked
	if unknown := slices.DeleteFunc(slices.Clone(addresses), func(addr netip.Addr) bool {
		return slices.ContainsFunc(looked, func(p netip.Prefix) bool { return p.Contains(addr) })
	}); len(unknown) > 0 {
		x.PodGone(unknown)
	}
	if !x.HasLeft(addresses) {
		return nil
	}
	return x.purge()
}
