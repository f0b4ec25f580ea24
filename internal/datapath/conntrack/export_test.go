package conntrack

import (
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/flow"
)

// FindOf returns the entry of an event, or nil.
func (s *Table) FindOf(e *flow.Event) (*bpf.CtEntry, error) { return s.find(keyOf(e)) }

// SetHeldAt sets when the verdict caches were last read.
func (s *Table) SetHeldAt(at time.Time) { s.heldAt = at }

// SetMany sets until when Forget runs the program at once.
func (s *Table) SetMany(until time.Time) { s.many.Store(&until) }
