// Package memory is a store of IPClaims for tests: it has the semantics of the API server.
package memory

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Store is a store that several agents share. It is safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	claims  map[netip.Addr]*cluster.IPClaim
	version int
	watches []*Watch
}

// New makes an empty Store.
func New() *Store { return &Store{claims: map[netip.Addr]*cluster.IPClaim{}} }

// All gives all claims in no order.
func (s *Store) All() []*cluster.IPClaim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.claims))
}

// Create implements ipclaim.Store.
func (s *Store) Create(_ context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claims[c.Address] != nil {
		return nil, fmt.Errorf("create %s: %w", c.Address, cluster.ErrClaimExists)
	}
	made := *c
	made.UID = strconv.Itoa(s.version + 1)
	return s.put(&made), nil
}

// Update implements ipclaim.Store.
func (s *Store) Update(_ context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.is(c) {
		return nil, fmt.Errorf("update %s: %w", c.Address, cluster.ErrClaimChanged)
	}
	made := *c
	return s.put(&made), nil
}

// Delete implements ipclaim.Store.
func (s *Store) Delete(_ context.Context, c *cluster.IPClaim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.claims[c.Address] == nil:
		return nil
	case !s.is(c):
		return fmt.Errorf("delete %s: %w", c.Address, cluster.ErrClaimChanged)
	}
	s.version++
	delete(s.claims, c.Address)
	s.notify(change{addr: c.Address})
	return nil
}

// Get implements ipclaim.Store.
func (s *Store) Get(_ context.Context, a netip.Addr) (*cluster.IPClaim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims[a], nil
}

// Follow implements ipclaim.Store.
func (s *Store) Follow(ctx context.Context, index cluster.ClaimIndex) {
	w := s.Watch()
	for {
		w.Deliver(index, -1)
		select {
		case <-ctx.Done():
			return
		case <-w.due:
		}
	}
}

// is reports whether a claim is the current one.
func (s *Store) is(c *cluster.IPClaim) bool {
	now := s.claims[c.Address]
	return now != nil && now.UID == c.UID && now.Version == c.Version
}

func (s *Store) put(c *cluster.IPClaim) *cluster.IPClaim {
	s.version++
	c.Version = strconv.Itoa(s.version)
	s.claims[c.Address] = c
	s.notify(change{c.Address, c})
	return c
}

func (s *Store) notify(c change) {
	for _, w := range s.watches {
		w.queue = append(w.queue, c)
		select {
		case w.due <- struct{}{}:
		default:
		}
	}
}

// change is a new claim of an address; nil if it was deleted.
type change struct {
	addr  netip.Addr
	claim *cluster.IPClaim
}

// Watch is a queue of changes that a client has not received yet.
type Watch struct {
	store *Store
	first []*cluster.IPClaim
	begun bool
	queue []change
	due   chan struct{}
}

// Watch begins a watch, which lists all claims first.
func (s *Store) Watch() *Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &Watch{store: s, first: slices.Collect(maps.Values(s.claims)), due: make(chan struct{}, 1)}
	s.watches = append(s.watches, w)
	return w
}

// Deliver delivers the list, if it was not yet, and up to max changes, or all if max is negative. It returns how many
// changes wait.
func (w *Watch) Deliver(index cluster.ClaimIndex, max int) int {
	w.store.mu.Lock()
	due := w.queue
	if max >= 0 && len(due) > max {
		due = due[:max]
	}
	w.queue = w.queue[len(due):]
	left := len(w.queue)
	w.store.mu.Unlock()
	if !w.begun {
		w.begun = true
		index.Replace(w.first)
	}
	for _, c := range due {
		if c.claim == nil {
			index.Remove(c.addr)
		} else {
			index.Set(c.claim)
		}
	}
	return left
}

// Close ends the watch.
func (w *Watch) Close() {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.watches = slices.DeleteFunc(w.store.watches, func(other *Watch) bool { return other == w })
}
