// Package ipam allocates the addresses of this node's pods. It is pure: the agent reserves (Reserve) the addresses in
// use when it starts, and nothing is written anywhere.
package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
)

// Errors that callers branch on, beside *ExhaustedError.
var (
	// ErrNoRange: the pool has no prefix yet.
	ErrNoRange = errors.New("node has no pod address range")
	// ErrHeld: the owner has addresses already (Allocate), or another owner has this one (Reserve).
	ErrHeld = errors.New("held already")
)

// Owner is the holder of addresses.
type Owner struct {
	// ID is unique on the node: container id and interface name.
	ID string
	// Namespace is the pod's, for messages; empty outside Kubernetes.
	Namespace string
}

// Usage is how much of one prefix is in use. Free is at most math.MaxInt64.
type Usage struct {
	Prefix netip.Prefix
	Used   int
	Free   int64
}

// Pool is a set of address ranges and their allocations. It is safe for concurrent use.
//
// Addresses of a range are allocated in turn, released ones last: a new pod should not meet a connection or a
// neighbour entry of the pod before. The last 65,536 releases are remembered for this. Beyond that, and after a
// restart of the agent, the turn alone delays reuse.
type Pool struct {
	mu     sync.Mutex
	ranges []*addrRange
	// allocations has every allocation, also outside of all ranges; held has the same by owner.
	allocations map[netip.Addr]Owner
	held        map[string][]netip.Addr
	// avoided are the addresses of Avoid.
	avoided []netip.Addr
}

// NewPool makes a pool of prefixes, which must not overlap. Without any, Allocate gives ErrNoRange.
func NewPool(prefixes []netip.Prefix) (*Pool, error) {
	p := &Pool{allocations: map[netip.Addr]Owner{}, held: map[string][]netip.Addr{}}
	if err := p.SetPrefixes(prefixes); err != nil {
		return nil, err
	}
	return p, nil
}

// SetPrefixes changes the ranges. Allocations remain. Those outside of all ranges are not allocated again after their
// release. On error nothing changes.
func (p *Pool) SetPrefixes(prefixes []netip.Prefix) error {
	if err := validate(prefixes); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()

	ranges := make([]*addrRange, 0, len(prefixes))
	for _, prefix := range prefixes {
		kept := slices.IndexFunc(p.ranges, func(r *addrRange) bool { return r.prefix == prefix })
		if kept >= 0 {
			ranges = append(ranges, p.ranges[kept])
			continue
		}
		r := newRange(prefix)
		for addr := range p.allocations {
			r.take(addr)
		}
		r.avoid(p.avoided)
		ranges = append(ranges, r)
	}
	p.ranges = ranges
	return nil
}

// Avoid sets the addresses that are never allocated, because something else on this node has them, such as a former
// network. Allocations are not affected.
func (p *Pool) Avoid(addrs []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.avoided = slices.Clone(addrs)
	for _, r := range p.ranges {
		r.avoid(p.avoided)
	}
}

// Allocate allocates one address of each family that the pool has, IPv4 first: all of them or none. Errors:
// ErrNoRange, ErrHeld when the owner has addresses already, *ExhaustedError.
func (p *Pool) Allocate(owner Owner) ([]netip.Addr, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ranges) == 0 {
		return nil, ErrNoRange
	}
	if addrs := p.held[owner.ID]; len(addrs) > 0 {
		return nil, fmt.Errorf("allocate for %s: %v %w", owner.ID, addrs, ErrHeld)
	}

	var addrs []netip.Addr
	for _, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
		ranges := p.rangesOf(family)
		if len(ranges) == 0 {
			continue
		}
		addr, ok := next(ranges)
		if !ok {
			return nil, p.exhausted(ranges)
		}
		addrs = append(addrs, addr)
	}
	for _, addr := range addrs {
		p.hold(owner, addr)
	}
	return slices.Clone(addrs), nil
}

// Reserve records that owner has addr, as the agent finds when it starts. The address may be outside of all ranges.
// Repeating it is no error; ErrHeld when another owner has the address.
func (p *Pool) Reserve(owner Owner, addr netip.Addr) error {
	if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
		return fmt.Errorf("reserve %s for %s: not a pod address", addr, owner.ID)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if holder, taken := p.allocations[addr]; taken {
		if holder.ID == owner.ID {
			return nil
		}
		return fmt.Errorf("reserve %s for %s: by %s %w", addr, owner.ID, holder.ID, ErrHeld)
	}
	p.hold(owner, addr)
	return nil
}

// Release releases all addresses of the owner and returns them; there may be none.
func (p *Pool) Release(ownerID string) []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	addrs := p.held[ownerID]
	delete(p.held, ownerID)
	for _, addr := range addrs {
		delete(p.allocations, addr)
		for _, r := range p.ranges {
			r.release(addr)
		}
	}
	return addrs
}

// Usage gives the use of each prefix, in the order of SetPrefixes.
func (p *Pool) Usage() []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	usage := make([]Usage, 0, len(p.ranges))
	for _, r := range p.ranges {
		usage = append(usage, Usage{Prefix: r.prefix, Used: len(r.used), Free: r.free()})
	}
	return usage
}

func (p *Pool) hold(owner Owner, addr netip.Addr) {
	p.allocations[addr] = owner
	p.held[owner.ID] = append(p.held[owner.ID], addr)
	for _, r := range p.ranges {
		r.take(addr)
	}
}

func (p *Pool) rangesOf(family func(netip.Addr) bool) []*addrRange {
	var ranges []*addrRange
	for _, r := range p.ranges {
		if family(r.prefix.Addr()) {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// next gives a free address of the first range that has one, without allocating it. Recently released addresses come
// last, over all ranges.
func next(ranges []*addrRange) (netip.Addr, bool) {
	for _, r := range ranges {
		if addr, ok := r.fresh(); ok {
			return addr, true
		}
	}
	for _, r := range ranges {
		if addr, ok := r.oldestReleased(); ok {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func validate(prefixes []netip.Prefix) error {
	for i, prefix := range prefixes {
		switch {
		case !prefix.IsValid():
			return errors.New("pod address range is not a prefix")
		case prefix.Addr().Is4In6():
			return fmt.Errorf("pod address range %s: IPv4 written as IPv6", prefix)
		case prefix != prefix.Masked():
			return fmt.Errorf("pod address range %s: has host bits, %s would not", prefix, prefix.Masked())
		case newRange(prefix).capacity() == 0:
			return fmt.Errorf("pod address range %s: too small, it has no address for a pod", prefix)
		}
		for _, other := range prefixes[:i] {
			if prefix.Overlaps(other) {
				return fmt.Errorf("pod address range %s: overlaps %s", prefix, other)
			}
		}
	}
	return nil
}
