package conntrack

import (
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/flow"
)

// FindOf gives the entry that an event is about, or nil.
func (s *Table) FindOf(e *flow.Event) (*bpf.CtEntry, error) { return s.find(keyOf(e)) }

// SetHeldAt sets when permits were looked at last.
func (s *Table) SetHeldAt(at time.Time) { s.heldAt = at }

// SetMany sets until when a pod is forgotten as among many.
func (s *Table) SetMany(until time.Time) { s.many.Store(&until) }
