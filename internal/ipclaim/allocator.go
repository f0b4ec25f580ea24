// Package ipclaim allocates addresses of IPPools to the pods of a node, together with the agents of other nodes. An
// address is allocated by creating its IPClaim: the store lets one of several creators win. Nothing else is shared.
//
// A claim is released when its attachment is deleted, or when its pod is gone: the API server is asked, never a cache. It
// is released by the node that the claim names, which knows whether the pod's device still exists; by other nodes only
// when that node is gone. The claim of a pod of a StatefulSet is kept without an attachment, for the next pod of the same
// name, while the StatefulSet has it.
package ipclaim

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// Attachment is one interface of one container.
type Attachment struct{ ContainerID, IfName string }

func (a Attachment) compare(b Attachment) int {
	return cmp.Or(cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.IfName, b.IfName))
}

// Store keeps claims. Implementations: apiserver.Claims, files.Store, memory.Store.
type Store interface {
	// Create makes a claim; cluster.ErrClaimExists if the address has one. After another error it may exist or not.
	Create(ctx context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error)
	// Update replaces a claim; cluster.ErrClaimChanged if it is not the one with this UID and Version.
	Update(ctx context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error)
	// Delete deletes a claim; cluster.ErrClaimChanged as for Update. A missing one is no error.
	Delete(ctx context.Context, c *cluster.IPClaim) error
	// Get gives the claim of an address as it is now; nil if there is none.
	Get(ctx context.Context, a netip.Addr) (*cluster.IPClaim, error)
	// Follow keeps an index current until ctx ends.
	Follow(ctx context.Context, index cluster.ClaimIndex)
}

// Facts asks what else there is in the cluster, now and not from a cache.
type Facts interface {
	// Pod gives a pod; nil if there is none.
	Pod(ctx context.Context, key cluster.Key) (*cluster.Pod, error)
	// NodeGone reports whether a node runs no pods any more.
	NodeGone(ctx context.Context, name string) (bool, error)
	// Ordinals gives the ordinals of a StatefulSet's pods: count of them from first; none if it does not exist.
	Ordinals(ctx context.Context, key cluster.Key) (first, count int, err error)
}

// Prober looks for another machine that has an address.
type Prober interface {
	// Probe gives a sentence on the machine that has the address; empty if there is none. The error is for a probe that
	// was not possible.
	Probe(ctx context.Context, p *ippool.Pool, a netip.Addr) (conflict string, err error)
}

// Options are what an Allocator depends on.
type Options struct {
	// Node is the name of this node.
	Node  string
	Store Store
	Facts Facts
	// Prober is nil if addresses are not probed.
	Prober Prober
	// Elected reports whether this node cleans up the claims of nodes that are gone: one of the ready nodes does.
	Elected func(duty cluster.Key) bool
	// MayBeGone reports whether Facts has to be asked for a node: a cache knows no such node, or that it is out of service.
	MayBeGone func(node string) bool
	// PoolsKnown reports whether SetPools got all pools of the cluster.
	PoolsKnown func() bool
	// RemoteChanged is called after a change of the addresses of other nodes' pods; nil is no function. It must not block.
	RemoteChanged func()
	Log           *slog.Logger
	// Now gives the time; nil is time.Now.
	Now func() time.Time
}

// Errors that callers branch on, beside *ippool.ExhaustedError, *InUseError and *ConflictError.
var (
	// ErrNotSynced: the claims of the cluster are not known yet.
	ErrNotSynced = errors.New("the IPClaims of the cluster are not synced yet")
	// ErrHeld: the attachment has addresses, or is about to get some.
	ErrHeld = errors.New("the attachment has addresses of an IPPool already")
)

// Allocator allocates addresses to the pods of one node. It is safe for concurrent use.
type Allocator struct {
	Options

	mu     sync.Mutex
	index  *index
	synced chan struct{} // closed when the claims are known
	// attachments are those of this node that have addresses, or are about to get or to lose them.
	attachments map[Attachment]*attachment
	// unknown are addresses of endpoints whose attachment is unknown.
	unknown map[netip.Addr]bool
	// due has capacity 1: there is work for Run.
	due chan struct{}
	// together calls a function for each of count numbers: in one order where a seed has to repeat it, else at once.
	together func(count int, do func(i int))
	// collected is the last claim of others that a pass has looked at; only Run uses it.
	collected cluster.Key
}

// state is what an attachment is about to do.
type state int

const (
	adding    state = iota // an ADD is in progress
	live                   // it has an endpoint
	releasing              // its endpoint is gone
)

// attachment is an attachment of this node.
type attachment struct {
	state state
	// pod, podUID and statefulSet are those of the pod, pool is the pool of the addresses.
	pod                       cluster.Key
	podUID, statefulSet, pool string
	addresses                 []netip.Addr
	// lost are addresses that another pod has, with a sentence on it.
	lost map[netip.Addr]string
}

// Live is an attachment with an endpoint of an earlier agent.
type Live struct {
	Attachment
	Request
	Pool      string
	Addresses []netip.Addr
}

// New makes an Allocator. existing are the attachments that have endpoints.
func New(o Options, existing []Live) *Allocator {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Elected == nil {
		o.Elected = func(cluster.Key) bool { return true }
	}
	if o.MayBeGone == nil {
		o.MayBeGone = func(string) bool { return true }
	}
	if o.RemoteChanged == nil {
		o.RemoteChanged = func() {}
	}
	if o.PoolsKnown == nil {
		o.PoolsKnown = func() bool { return true }
	}
	a := &Allocator{Options: o, index: newIndex(o.Node), synced: make(chan struct{}), attachments: map[Attachment]*attachment{}, unknown: map[netip.Addr]bool{}, together: together, due: make(chan struct{}, 1)}
	for _, e := range existing {
		a.Adopt(e)
	}
	return a
}

// Adopt takes over an attachment with an endpoint of an earlier agent, before Run. Without a ContainerID it is not known
// whose the addresses are: their claims stay as they are.
func (a *Allocator) Adopt(e Live) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.ContainerID == "" {
		for _, addr := range e.Addresses {
			a.unknown[addr] = true
		}
		return
	}
	at := newAttachment(e.Request, live)
	at.pool, at.addresses = e.Pool, e.Addresses
	a.attachments[e.Attachment] = at
}

func newAttachment(r Request, s state) *attachment {
	return &attachment{state: s, pod: cluster.Key{Namespace: r.Namespace, Name: r.Pod}, podUID: r.PodUID, statefulSet: r.StatefulSet}
}

// SetPools replaces the pools.
func (a *Allocator) SetPools(set *ippool.Set) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index.setPools(set)
	a.wake()
}

// Use gives the use of a family of a pool.
func (a *Allocator) Use(p *ippool.Pool, f ippool.Family) ippool.Use {
	a.mu.Lock()
	defer a.mu.Unlock()
	use := a.index.useOf(p, f)
	use.Namespaces = nil // shared
	return use
}

// Synced reports whether the claims of the cluster are known.
func (a *Allocator) Synced() bool {
	select {
	case <-a.synced:
		return true
	default:
		return false
	}
}

// WaitSynced waits until the claims of the cluster are known, or until ctx ends.
func (a *Allocator) WaitSynced(ctx context.Context) {
	select {
	case <-a.synced:
	case <-ctx.Done():
	}
}

func (a *Allocator) wake() {
	select {
	case a.due <- struct{}{}:
	default:
	}
}

// Replace implements cluster.ClaimIndex.
func (a *Allocator) Replace(all []*cluster.IPClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index.replace(all)
	a.RemoteChanged()
	if !a.Synced() {
		close(a.synced)
	}
	a.wake()
}

// Set implements cluster.ClaimIndex.
func (a *Allocator) Set(c *cluster.IPClaim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.index.claims[c.Address]
	a.index.put(c)
	if a.index.remoteNode(before) != a.index.remoteNode(c) {
		a.RemoteChanged()
	}
	if a.concerns(c) {
		a.wake()
	}
}

// Remove implements cluster.ClaimIndex.
func (a *Allocator) Remove(addr netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.index.claims[addr]; c != nil && a.concerns(c) {
		a.wake()
	}
	if a.index.remoteNode(a.index.claims[addr]) != "" {
		a.RemoteChanged()
	}
	a.index.remove(addr)
}

// Remote gives the addresses of pools that pods of other nodes have, by the name of the node. The lists must not be changed.
func (a *Allocator) Remote() map[string][]netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.index.remoteAddresses()
}

// concerns reports whether a changed claim may be that of an attachment of this node.
func (a *Allocator) concerns(c *cluster.IPClaim) bool {
	for _, at := range a.attachments {
		for _, addr := range at.addresses {
			if addr == c.Address {
				return at.state == live
			}
		}
	}
	return c.Node == a.Node && c.Bound() && a.attachments[attachmentOf(c)] == nil
}
