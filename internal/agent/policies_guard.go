package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/beeline-cni/beeline/internal/policy"
)

// unguarded is a pod whose program for what the host's stack sends to it cannot be attached.
type unguarded struct {
	// err is why not.
	err error
	// open is why the stack forwards to the pod all the same; nil if it does not.
	open error
}

// closer has the host's stack forward nothing to pods whose program for that is missing.
type closer struct {
	log *slog.Logger
	// sync closes these addresses and no others: see device.SyncClosed.
	sync func([]netip.Addr) (changed int, err error)

	mu sync.Mutex
	// closed are the addresses, sorted. Before they are known, those stay closed that an earlier agent has closed.
	closed []netip.Addr
	known  bool
	// synced says that the kernel has them.
	synced bool
}

// guard gives a guard for policies by one that attaches programs: where that fails, it closes.
func (c *closer) guard(attach func(map[netip.Addr]policy.Sets) map[netip.Addr]error) func(map[netip.Addr]policy.Sets) map[netip.Addr]unguarded {
	return func(sets map[netip.Addr]policy.Sets) map[netip.Addr]unguarded {
		failed := attach(sets)
		open := c.set(slices.SortedFunc(maps.Keys(failed), netip.Addr.Compare))
		all := make(map[netip.Addr]unguarded, len(failed))
		for a, err := range failed {
			all[a] = unguarded{err, open}
		}
		return all
	}
}

// set closes these addresses and opens all others.
func (c *closer) set(addresses []netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.synced && slices.Equal(c.closed, addresses) {
		return nil
	}
	c.closed, c.known = addresses, true
	return c.syncLocked()
}

// renew puts back what somebody else has taken away. With forget, nothing is closed any more.
func (c *closer) renew(forget bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if forget {
		c.closed, c.known = nil, true
	}
	if !c.known {
		return nil
	}
	return c.syncLocked()
}

func (c *closer) syncLocked() error {
	changed, err := c.sync(c.closed)
	c.synced = err == nil
	if changed > 0 {
		c.log.Warn("the host's stack forwards nothing to pods without a program for it", "addresses", c.closed, "error", err)
	}
	if err != nil {
		return fmt.Errorf("close pods for what the host's stack forwards to them: %w", err)
	}
	return nil
}
