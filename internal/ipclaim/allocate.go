package ipclaim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// Request is a pod that needs addresses.
type Request struct {
	// Namespace, Pod and PodUID are those of the pod. Without a UID no other attachment is of the same pod.
	Namespace, Pod, PodUID string
	// StatefulSet is the StatefulSet that controls the pod; empty if there is none.
	StatefulSet string
	// Pools are tried in turn.
	Pools []*ippool.Pool
}

// Allocation is the addresses of a pod.
type Allocation struct {
	Pool *ippool.Pool
	// Addresses has one of each family of the pool, IPv4 first.
	Addresses []netip.Addr
}

// InUseError says that the address of a StatefulSet's pod is still in use by the pod before.
type InUseError struct {
	Claim *cluster.IPClaim
}

// Error names the address and who has it.
func (e *InUseError) Error() string {
	return fmt.Sprintf("address %s of pod %s is still in use by the pod that had the name before, on node %s: it is free when that "+
		"pod's containers have ended, or when Node %s is deleted or has the taint node.kubernetes.io/out-of-service",
		e.Claim.Address, podOf(e.Claim), e.Claim.Node, e.Claim.Node)
}

// ConflictError says that other machines of the network answer for the addresses of a pool.
type ConflictError struct {
	Pool *ippool.Pool
	// Last is a sentence on the last one, Count how many there are.
	Last  string
	Count int
}

// Error says what may be the reason.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("IPPool %s: %d addresses seem to be those of other machines, the last: %s (if a router answers for all addresses, set spec.probe to false)",
		e.Pool.Name, e.Count, e.Last)
}

const (
	// attemptsMax bounds how many addresses one ADD tries to create, over all races with other agents.
	attemptsMax = 64
	// conflictsMax bounds how many addresses one ADD finds in use by other machines. Each takes the time of a probe.
	conflictsMax = 3
)

// Allocate allocates one address of each family of a pool to an attachment: all of them or none. The caller calls
// Commit when the pod has an endpoint, else Abandon. Errors: ErrNotSynced, ErrHeld, *InUseError,
// *ConflictError, *ippool.ExhaustedError.
func (a *Allocator) Allocate(ctx context.Context, att Attachment, r Request) (allocation *Allocation, err error) {
	if !a.Synced() {
		return nil, ErrNotSynced
	}
	if len(r.Pools) == 0 {
		return nil, errors.New("allocate: no IPPool is given")
	}
	at, err := a.begin(att, r)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.abandon(att, at)
		}
	}()
	var errs []error
	for _, p := range a.inOrder(att, r) {
		addresses, err := a.fromPool(ctx, att, at, r, p)
		if err == nil {
			return &Allocation{p, addresses}, nil
		}
		errs = append(errs, err)
		if exhausted := (*ippool.ExhaustedError)(nil); !errors.As(err, &exhausted) {
			break
		}
		if err := a.giveBack(ctx, att, at); err != nil { // of the other family
			errs = append(errs, err)
			break
		}
	}
	return nil, errors.Join(errs...)
}

// begin registers an attachment, so that its claims are not taken for garbage.
func (a *Allocator) begin(att Attachment, r Request) (*attachment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at := a.attachments[att]; at != nil && at.state != releasing {
		return nil, fmt.Errorf("container %s, interface %s: %w", att.ContainerID, att.IfName, ErrHeld)
	}
	at := newAttachment(r, adding)
	a.attachments[att] = at
	return at, nil
}

// Commit says that an attachment has an endpoint. It is an error if Release came before.
func (a *Allocator) Commit(att Attachment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.attachments[att]
	if at == nil || at.state != adding {
		return fmt.Errorf("container %s, interface %s: was deleted within its ADD", att.ContainerID, att.IfName)
	}
	at.state = live
	return nil
}

// inOrder gives the pools, those with addresses of the same pod first.
func (a *Allocator) inOrder(att Attachment, r Request) []*ippool.Pool {
	a.mu.Lock()
	defer a.mu.Unlock()
	has := func(p *ippool.Pool) bool {
		return slices.ContainsFunc(a.former(att, r), func(c *cluster.IPClaim) bool { return p.Contains(c.Address) })
	}
	first := slices.DeleteFunc(slices.Clone(r.Pools), func(p *ippool.Pool) bool { return !has(p) })
	return append(first, slices.DeleteFunc(slices.Clone(r.Pools), has)...)
}

// former gives the claims that an attachment takes over: of an earlier container of the same pod, or of the pod that had
// its name before in a StatefulSet. They are sorted.
func (a *Allocator) former(att Attachment, r Request) (all []*cluster.IPClaim) {
	for addr := range a.index.pods[cluster.Key{Namespace: r.Namespace, Name: r.Pod}] {
		c := a.index.claims[addr]
		samePod := r.PodUID != "" && c.PodUID == r.PodUID
		if c.IfName == att.IfName && !c.Conflicts() && r.Pod != "" && (samePod || r.StatefulSet != "" && c.StatefulSet == r.StatefulSet) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, byAddress)
	return all
}

// fromPool allocates from one pool. The families do not wait for each other.
func (a *Allocator) fromPool(ctx context.Context, att Attachment, at *attachment, r Request, p *ippool.Pool) ([]netip.Addr, error) {
	families := p.Families()
	addresses, errs := make([]netip.Addr, len(families)), make([]error, len(families))
	a.together(len(families), func(i int) {
		claim, err := a.takeOver(ctx, att, at, r, p, families[i])
		if err == nil && claim == nil {
			claim, err = a.create(ctx, att, at, r, p, families[i])
		}
		if errs[i] = err; err == nil {
			addresses[i] = claim.Address
		}
	})
	if err := firstHopeless(errs); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	at.pool = p.Name
	return addresses, nil
}

// firstHopeless gives the error to return: one that the next pool does not help against comes first.
func firstHopeless(errs []error) (first error) {
	for _, err := range errs {
		if exhausted := (*ippool.ExhaustedError)(nil); err != nil && (first == nil || !errors.As(err, &exhausted)) {
			first = err
		}
	}
	return first
}

// together calls do for each of count numbers, at the same time.
func together(count int, do func(i int)) {
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// hold records that an attachment has, or may have, an address.
func (a *Allocator) hold(at *attachment, addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(at.addresses, addr) {
		at.addresses = append(at.addresses, addr)
	}
}

// errAgain says that a claim was newer than the index.
var errAgain = errors.New("the claim has changed")

// takeOver gives the attachment a former claim of a family; nil if there is none.
func (a *Allocator) takeOver(ctx context.Context, att Attachment, at *attachment, r Request, p *ippool.Pool, f ippool.Family) (*cluster.IPClaim, error) {
	for range attemptsMax {
		c, err := a.formerOf(ctx, att, r, p, f)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil || c == nil {
			return nil, err
		}
		next := *c
		bind(&next, a.Node, att, r)
		a.hold(at, c.Address)
		updated, err := a.Store.Update(ctx, &next)
		if err == nil {
			a.Set(updated)
			return updated, nil
		}
		if err = a.refresh(ctx, c.Address, err); err != nil {
			return nil, err
		}
		if now := a.claim(c.Address); now != nil && isOf(now, a.Node, att) {
			return now, nil // the answer was lost
		}
		a.unhold(at, c.Address)
	}
	return nil, fmt.Errorf("take over the address of pod %s/%s: its claims keep changing", r.Namespace, r.Pod)
}

// formerOf chooses the former claim of a family that the attachment may take over; nil if there is none.
func (a *Allocator) formerOf(ctx context.Context, att Attachment, r Request, p *ippool.Pool, f ippool.Family) (*cluster.IPClaim, error) {
	a.mu.Lock()
	former := a.former(att, r)
	a.mu.Unlock()
	for _, c := range former {
		if ippool.FamilyOf(c.Address) != f || !p.Contains(c.Address) {
			continue // outside of a pool that has shrunk: garbage, when nothing uses it
		}
		free, err := a.isFree(ctx, att, r, c)
		if err != nil {
			return nil, err
		}
		if free {
			return c, nil
		}
	}
	return nil, nil
}

// isFree reports whether nothing uses a former claim.
func (a *Allocator) isFree(ctx context.Context, att Attachment, r Request, c *cluster.IPClaim) (bool, error) {
	if !c.Bound() || isOf(c, a.Node, att) {
		return true, nil
	}
	if c.Node == a.Node {
		a.mu.Lock()
		user := a.attachments[attachmentOf(c)]
		a.mu.Unlock()
		if user == nil || user.state == releasing {
			return true, nil
		}
		if c.PodUID == r.PodUID {
			return false, nil // an earlier sandbox, which keeps its address until its DEL
		}
		return false, &InUseError{c}
	}
	now, err := a.Store.Get(ctx, c.Address) // the other node may have released it just now
	if err != nil {
		return false, fmt.Errorf("take over the address %s: %w", c.Address, err)
	}
	if now == nil {
		a.Remove(c.Address)
		return false, errAgain
	}
	if now.Version != c.Version {
		a.Set(now)
		return false, errAgain
	}
	gone, err := a.Facts.NodeGone(ctx, c.Node)
	if err != nil {
		return false, fmt.Errorf("take over the address %s: %w", c.Address, err)
	}
	if !gone {
		return false, &InUseError{c}
	}
	return true, nil
}

// create allocates a new address.
func (a *Allocator) create(ctx context.Context, att Attachment, at *attachment, r Request, p *ippool.Pool, f ippool.Family) (*cluster.IPClaim, error) {
	conflicts := 0
	tried := map[netip.Addr]bool{}
	for attempt := range attemptsMax {
		addr, err := a.candidate(p, f, seedOf(r, att, attempt), r.Namespace, tried)
		if err != nil {
			return nil, err
		}
		tried[addr] = true
		claim, err := a.tryCreate(ctx, addr, att, at, r, p)
		if err != nil {
			return nil, err
		}
		if claim == nil {
			continue // another agent was faster
		}
		free, err := a.probe(ctx, at, p, claim)
		if err != nil {
			return nil, err
		}
		if free {
			return claim, nil
		}
		if conflicts++; conflicts == conflictsMax {
			return nil, &ConflictError{p, a.claim(addr).ConflictReason, conflicts}
		}
	}
	return nil, fmt.Errorf("IPPool %s: other nodes have taken %d addresses in a row", p.Name, attemptsMax)
}

// candidate reserves an address to try, among the agent's own ADDs.
func (a *Allocator) candidate(p *ippool.Pool, f ippool.Family, seed uint64, namespace string, tried map[netip.Addr]bool) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	use := a.index.useOf(p, f)
	if err := p.Admits(namespace, f, use); err != nil {
		return netip.Addr{}, err
	}
	taken := func(addr netip.Addr) bool { return a.index.taken(addr) || tried[addr] }
	addr, ok := p.Spaces[f].Free(seed, use.Taken+int64(len(a.index.trying)+len(tried)), taken)
	if !ok {
		return addr, &ippool.ExhaustedError{Pool: p, Family: f, Use: use}
	}
	a.index.trying[addr] = true
	return addr, nil
}

// seedOf decides where an attempt begins to search. A pod that is made anew with the same name begins at the same address.
// Attempts begin far from each other: an index that is behind does not know of whole rows of addresses.
func seedOf(r Request, att Attachment, attempt int) uint64 {
	h := fnv.New64a()
	for _, part := range []string{r.Namespace, r.Pod, att.IfName, strconv.Itoa(attempt)} {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	if r.Pod == "" {
		_, _ = h.Write([]byte(att.ContainerID))
	}
	return h.Sum64()
}

// tryCreate creates the claim of an address; nil if it is taken.
func (a *Allocator) tryCreate(ctx context.Context, addr netip.Addr, att Attachment, at *attachment, r Request, p *ippool.Pool) (*cluster.IPClaim, error) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.index.trying, addr)
	}()
	next := &cluster.IPClaim{Address: addr, Pool: p.Name}
	bind(next, a.Node, att, r)
	a.hold(at, addr)
	made, err := a.Store.Create(ctx, next)
	if err == nil {
		a.Set(made)
		return made, nil
	}
	if errors.Is(err, cluster.ErrClaimExists) {
		a.unhold(at, addr)
		return nil, nil
	}
	if err := a.refresh(ctx, addr, err); err != nil {
		return nil, err
	}
	switch now := a.claim(addr); {
	case now == nil:
		return nil, err // or it is still under way: then its claim is garbage, or that of the pod's next ADD
	case isOf(now, a.Node, att):
		return now, nil // the answer was lost
	}
	a.unhold(at, addr)
	return nil, nil
}

// refresh reads a claim after an error of the store, which may have done what it was asked. It returns the error if
// that is not possible.
func (a *Allocator) refresh(ctx context.Context, addr netip.Addr, of error) error {
	now, err := a.Store.Get(ctx, addr)
	if err != nil {
		return errors.Join(of, err)
	}
	if now == nil {
		a.Remove(addr)
		return nil
	}
	a.Set(now)
	return nil
}

func (a *Allocator) claim(addr netip.Addr) *cluster.IPClaim {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.index.claims[addr]
}

func (a *Allocator) unhold(at *attachment, addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at.addresses = slices.DeleteFunc(at.addresses, func(x netip.Addr) bool { return x == addr })
}

// probe looks for another machine that has the address of a new claim. If there is one, the claim is marked and kept, so
// that the address is not tried again for a while.
func (a *Allocator) probe(ctx context.Context, at *attachment, p *ippool.Pool, c *cluster.IPClaim) (free bool, err error) {
	if a.Prober == nil {
		return true, nil
	}
	conflict, err := a.Prober.Probe(ctx, p, c.Address)
	if err != nil {
		return false, fmt.Errorf("IPPool %s: %w", p.Name, err)
	}
	if conflict == "" {
		return true, nil
	}
	a.mu.Lock()
	f := ippool.FamilyOf(c.Address)
	use := a.index.useOf(p, f)
	a.mu.Unlock()
	if !p.SetsAside(f, use) {
		return false, &ConflictError{p, conflict, int(use.Conflicts) + 1}
	}
	marked := *c
	marked.Node, marked.Namespace, marked.Pod, marked.PodUID, marked.StatefulSet, marked.ContainerID, marked.IfName = "", "", "", "", "", "", ""
	marked.Conflict, marked.ConflictReason = a.Now().UTC(), conflict
	updated, err := a.Store.Update(ctx, &marked)
	if err != nil {
		return false, fmt.Errorf("mark the conflict of %s: %w", c.Address, err)
	}
	a.Log.Warn("address is in use by another machine", "address", c.Address, "pool", p.Name, "conflict", conflict)
	a.Set(updated)
	a.unhold(at, c.Address)
	return false, nil
}

// bind makes a claim that of an attachment.
func bind(c *cluster.IPClaim, node string, att Attachment, r Request) {
	c.Node, c.Namespace, c.Pod, c.PodUID, c.StatefulSet = node, r.Namespace, r.Pod, r.PodUID, r.StatefulSet
	c.ContainerID, c.IfName = att.ContainerID, att.IfName
}

// isOf reports whether a claim is that of an attachment of a node.
func isOf(c *cluster.IPClaim, node string, att Attachment) bool {
	return c.Node == node && attachmentOf(c) == att
}
