package conntrack

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Flush moves the entries of `ct_new` to `conntrack` (flush_conntrack of bpf/prog/maintenance.h).
func (s *Table) Flush() error {
	if err := table.RunAgentProgram(s.flush); err != nil {
		return fmt.Errorf("flush new conntrack entries: %w", err)
	}
	return nil
}

// find returns an entry of `ct_new` or `conntrack`, or nil if there is none.
func (s *Table) find(key bpf.Tuple) (*bpf.CtEntry, error) {
	var recent bpf.CtNewEntry
	err := s.recent.Lookup(bpf.ConntrackNewIndex(key), &recent)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist): // nothing is tracked: the map has one entry
	case err != nil:
		return nil, fmt.Errorf("read new conntrack entry: %w", err)
	case recent.Key == key:
		return &recent.Entry, nil
	}
	var v bpf.CtEntry
	err = s.m.Lookup(key, &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read conntrack entry: %w", err)
	}
	return &v, nil
}
