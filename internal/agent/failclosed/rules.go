package failclosed

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/beeline-cni/beeline/internal/device/route"
)

// Missing is what a pod lacks to enforce policies.
type Missing struct {
	Device string
	// Ingress says why the program for packets that the kernel stack sends to the pod is missing, Egress why that for packets from the
	// pod; nil for a program that is attached or that the pod does not need.
	Ingress, Egress error
	// Open says why the kernel stack still forwards for the pod; nil if it does not.
	Open error
}

// Reason gives the reason of one direction.
func (m Missing) Reason(ingress bool) error {
	if ingress {
		return m.Ingress
	}
	return m.Egress
}

// Reason gives a reason of one direction, the same one at each call, and why the pod is open; nil if no program is missing.
func Reason(all map[netip.Addr]Missing, ingress bool) (reason, open error) {
	for _, a := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		if m := all[a]; m.Reason(ingress) != nil {
			return m.Reason(ingress), m.Open
		}
	}
	return nil, nil
}

// Err is an error of both directions; nil if no program is missing.
func Err(all map[netip.Addr]Missing) error {
	ingress, _ := Reason(all, true)
	egress, _ := Reason(all, false)
	return errors.Join(ingress, egress)
}

// rules are the routing rules by which the kernel stack forwards nothing to and from pods that lack programs.
type rules struct {
	log *slog.Logger
	// sync is Kernel.SyncClosed.
	sync func(closed route.Blackholes, keep bool) (changed int, err error)

	mu sync.Mutex
	// closed is sorted.
	closed route.Blackholes
	// adopted says that this agent has tried to attach programs to the pods of an earlier one. Before, what that closed stays closed.
	adopted bool
	// synced says that the kernel holds closed.
	synced bool
}

// closedFor lists what to close for pods by their addresses.
func closedFor(pods map[netip.Addr]Missing) (closed route.Blackholes) {
	for _, a := range slices.SortedFunc(maps.Keys(pods), netip.Addr.Compare) {
		m := pods[a]
		if m.Ingress != nil {
			closed.To = append(closed.To, a)
		}
		if m.Egress != nil {
			closed.From = append(closed.From, m.Device)
		}
	}
	slices.Sort(closed.From)
	closed.From = slices.Compact(closed.From)
	return closed
}

// set closes these and opens all others.
func (r *rules) set(closed route.Blackholes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.synced && slices.Equal(r.closed.To, closed.To) && slices.Equal(r.closed.From, closed.From) {
		return nil
	}
	r.closed = closed
	return r.syncLocked()
}

// adoptionDone lets the next set or renew open what an earlier agent closed.
func (r *rules) adoptionDone() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.adopted {
		r.adopted, r.synced = true, false
	}
}

// renew restores what somebody else removed; with open it opens all pods.
func (r *rules) renew(open bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open {
		r.closed, r.adopted = route.Blackholes{}, true
	}
	return r.syncLocked()
}

func (r *rules) syncLocked() error {
	changed, err := r.sync(r.closed, !r.adopted)
	r.synced = err == nil
	if changed > 0 {
		r.log.Warn("the kernel stack forwards nothing for pods that lack a policy program", "to", r.closed.To, "from", r.closed.From, "error", err)
	}
	if err != nil {
		return fmt.Errorf("close pods that lack a policy program: %w", err)
	}
	return nil
}
