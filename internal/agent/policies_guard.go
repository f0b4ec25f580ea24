package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/policy"
)

// unguarded is a pod that policies govern whose packets nobody judges, since a program cannot be attached to its device.
type unguarded struct {
	device string
	// ingress is why the program is missing for what the host's stack sends to the pod, and egress why that for what the pod sends; nil for
	// one that is there, or that policies do not need.
	ingress, egress error
	// open is why the stack forwards for the pod all the same; nil if it does not.
	open error
}

// why is the reason of one direction.
func (u unguarded) why(ingress bool) error {
	if ingress {
		return u.ingress
	}
	return u.egress
}

// closer has the host's stack forward nothing to and from pods whose programs for that are missing.
type closer struct {
	log *slog.Logger
	// sync closes these and no others, or keeps what is closed beside: see device.SyncClosed.
	sync func(closed device.Closed, keep bool) (changed int, err error)

	mu sync.Mutex
	// closed is sorted. Before it is known, what an earlier agent has closed stays so.
	closed device.Closed
	known  bool
	// tookOver says that it was tried to attach programs to the pods of an earlier agent. Before, what that has closed is not opened.
	tookOver bool
	// synced says that the kernel has it.
	synced bool
}

// guard gives a guard for policies by one that attaches programs: where that fails, it closes.
func (c *closer) guard(attach func(map[netip.Addr]policy.Sets) map[netip.Addr]unguarded) func(map[netip.Addr]policy.Sets) map[netip.Addr]unguarded {
	return func(sets map[netip.Addr]policy.Sets) map[netip.Addr]unguarded {
		failed := attach(sets)
		if open := c.set(closedFor(failed)); open != nil {
			for a, u := range failed {
				u.open = open
				failed[a] = u
			}
		}
		return failed
	}
}

// closedFor is what has to be closed for pods by their addresses.
func closedFor(pods map[netip.Addr]unguarded) (closed device.Closed) {
	for _, a := range slices.SortedFunc(maps.Keys(pods), netip.Addr.Compare) {
		u := pods[a]
		if u.ingress != nil {
			closed.To = append(closed.To, a)
		}
		if u.egress != nil {
			closed.From = append(closed.From, u.device)
		}
	}
	slices.Sort(closed.From)
	closed.From = slices.Compact(closed.From)
	return closed
}

// set closes this and opens all else.
func (c *closer) set(closed device.Closed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.synced && slices.Equal(c.closed.To, closed.To) && slices.Equal(c.closed.From, closed.From) {
		return nil
	}
	c.closed, c.known = closed, true
	return c.syncLocked()
}

// takeOver allows to open what an earlier agent has closed and this one does not: by the next set or renew.
func (c *closer) takeOver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.tookOver {
		c.tookOver, c.synced = true, false
	}
}

// renew puts back what somebody else has taken away. With forget, nothing is closed any more.
func (c *closer) renew(forget bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if forget {
		c.closed, c.known, c.tookOver = device.Closed{}, true, true
	}
	if !c.known {
		return nil
	}
	return c.syncLocked()
}

func (c *closer) syncLocked() error {
	changed, err := c.sync(c.closed, !c.tookOver)
	c.synced = err == nil
	if changed > 0 {
		c.log.Warn("the host's stack forwards nothing for pods without a program that judges it", "to", c.closed.To, "from", c.closed.From, "error", err)
	}
	if err != nil {
		return fmt.Errorf("close pods for what the host's stack forwards: %w", err)
	}
	return nil
}

// someOf gives a reason of one direction, always the same one, with whether it leaves pods open; nil if there is none.
func someOf(all map[netip.Addr]unguarded, ingress bool) (why, open error) {
	for _, a := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		if u := all[a]; u.why(ingress) != nil {
			return u.why(ingress), u.open
		}
	}
	return nil, nil
}

// unguardedError is why pods are not guarded; nil if all are.
func unguardedError(all map[netip.Addr]unguarded) error {
	ingress, _ := someOf(all, true)
	egress, _ := someOf(all, false)
	return errors.Join(ingress, egress)
}
