package conntrack

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Flush moves the sessions that are young to the table of the others (flush_conntrack of bpf/prog/maintenance.h).
func (s *Table) Flush() error {
	if err := table.RunAgentProgram(s.flush); err != nil {
		return fmt.Errorf("settle young sessions: %w", err)
	}
	return nil
}

// find gives a session, young or not, or nil if there is none.
func (s *Table) find(key bpf.Tuple) (*bpf.CtEntry, error) {
	var young bpf.CtNewEntry
	err := s.recent.Lookup(bpf.ConntrackNewIndex(key), &young)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist): // nothing is tracked: there is one place
	case err != nil:
		return nil, fmt.Errorf("read young session: %w", err)
	case young.Key == key:
		return &young.Entry, nil
	}
	var v bpf.CtEntry
	err = s.m.Lookup(key, &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	return &v, nil
}
