package source

import (
	"sync"

	"github.com/beeline-cni/beeline/internal/agent/loop"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// Handover holds the latest snapshot until the main loop takes it: the source and Services do not wait for a
// reconciliation.
type Handover struct {
	// Ready is set when a snapshot waits.
	Ready loop.Signal

	mu     sync.Mutex
	latest *cluster.Snapshot
}

// Put replaces a waiting snapshot, and keeps its time: the change that it brought is not applied yet.
func (h *Handover) Put(s *cluster.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest != nil {
		if since := h.latest.Since; !since.IsZero() && (s.Since.IsZero() || since.Before(s.Since)) {
			both := *s
			both.Since, s = since, &both
		}
	}
	h.latest = s
	h.Ready.Set()
}

// Take gives the waiting snapshot; nil if there is none.
func (h *Handover) Take() *cluster.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.latest
	h.latest = nil
	return s
}

// NewHandover makes a Handover without a snapshot.
func NewHandover() *Handover { return &Handover{Ready: loop.NewSignal()} }
