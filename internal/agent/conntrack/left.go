package conntrack

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// leftPods are the addresses of deleted pods that may still have entries.
type leftPods struct {
	mu        sync.Mutex
	addresses map[netip.Addr]bool
	// purging is held while the tables are read, which may take long.
	purging sync.Mutex
	// looked are the ranges that FindLeft has searched. Any other address may have entries of an earlier agent.
	looked []netip.Prefix
}

// FindLeft searches each range once for addresses that have entries but no pod: an earlier agent may have been killed
// before it removed the entries of a deleted pod. others are addresses in the ranges that are not Beeline's,
// present those of existing pods.
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
		x.log.Info("removing entries of deleted pods", "addresses", found)
		x.PodGone(found)
	}
	return nil
}

// PodGone hands over the addresses of a deleted pod. It does not block.
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

// purge removes the entries of all deleted pods. Their addresses stay in left until the tables have no entries of
// them.
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
		return fmt.Errorf("remove entries of deleted pods: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, addr := range gone {
		delete(l.addresses, addr)
	}
	return nil
}

// HasLeft reports whether one of these addresses may still have entries of a deleted pod.
func (x *Expiry) HasLeft(addresses []netip.Addr) bool {
	x.left.mu.Lock()
	defer x.left.mu.Unlock()
	return slices.ContainsFunc(addresses, func(addr netip.Addr) bool { return x.left.addresses[addr] })
}

// forgetPods removes the entries of deleted pods.
func (x *Expiry) forgetPods() {
	if err := x.purge(); err != nil {
		x.failures.Add(1)
		x.log.Error("entries of deleted pods remain until their addresses are allocated again", "error", err)
	}
}

// Clear makes sure that a new pod inherits no entries of an earlier pod with its addresses. Usually there are none.
// Calls of Clear and FindLeft do not overlap.
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
