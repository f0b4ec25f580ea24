package bpf

import (
	"bytes"
)

// ConntrackKey is the key of a packet's conntrack entry, and whether the key has the packet's ends reversed. As
// ct_key of bpf/lib/policy/verdict_cache.h.
func ConntrackKey(t Tuple) (key Tuple, reversed bool) {
	source, destination := t.Source.Addr().As16(), t.Destination.Addr().As16()
	order := bytes.Compare(source[:], destination[:])
	if order < 0 || order == 0 && NetworkOrder(t.SourcePort) <= NetworkOrder(t.DestinationPort) {
		return t, false
	}
	t.Source, t.Destination = t.Destination, t.Source
	t.SourcePort, t.DestinationPort = t.DestinationPort, t.SourcePort
	return t, true
}

// ConntrackNewIndex is the index of a connection in `ct_new`. As ct_new_index of bpf/lib/policy/ct_new.h.
func ConntrackNewIndex(key Tuple) uint32 {
	const multiplier = 0x9e3779b1
	source, destination := key.Source.Word, key.Destination.Word
	hash := source[2]*multiplier ^ source[3]
	hash = hash*multiplier ^ destination[2]
	hash = hash*multiplier ^ destination[3]
	hash = hash*multiplier ^ (uint32(key.SourcePort)<<16 | uint32(key.DestinationPort))
	return hash * multiplier >> 22
}
