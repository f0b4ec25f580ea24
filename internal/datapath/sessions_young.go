package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// settleYoung moves the sessions that are young to the table of the others (flush_conntrack of bpf/prog/maintenance.h).
func (s *Sessions) settleYoung() error {
	if err := runAgentProgram(s.settle); err != nil {
		return fmt.Errorf("settle young sessions: %w", err)
	}
	return nil
}

// find gives a session, young or not, or nil if there is none.
func (s *Sessions) find(key bpfTuple) (*bpfCtEntry, error) {
	var young bpfCtNewEntry
	err := s.young.Lookup(youngIndex(key), &young)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist): // nothing is tracked: there is one place
	case err != nil:
		return nil, fmt.Errorf("read young session: %w", err)
	case young.Key == key:
		return &young.Entry, nil
	}
	var v bpfCtEntry
	err = s.m.Lookup(key, &v)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read session: %w", err)
	}
	return &v, nil
}

// youngIndex gives the place of a session. As ct_new_index of bpf/lib/policy/ct_new.h.
func youngIndex(key bpfTuple) uint32 {
	const multiplier = 0x9e3779b1
	source, destination := key.Source.Word, key.Destination.Word
	hash := source[2]*multiplier ^ source[3]
	hash = hash*multiplier ^ destination[2]
	hash = hash*multiplier ^ destination[3]
	hash = hash*multiplier ^ (uint32(key.SourcePort)<<16 | uint32(key.DestinationPort))
	return hash * multiplier >> 22
}
