package datapath

import (
	"time"

	"github.com/beeline-cni/beeline/internal/flow"
)

// findOf gives the entry that an event is about, or nil.
func (s *Sessions) findOf(e *flow.Event) (*bpfCtEntry, error) { return s.find(keyOf(e)) }

// setHeldAt sets when permits were looked at last.
func (s *Sessions) setHeldAt(at time.Time) { s.heldAt = at }

// setMany sets until when a pod is forgotten as among many.
func (s *Sessions) setMany(until time.Time) { s.many.Store(&until) }
