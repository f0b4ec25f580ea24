package fwd

import (
	"fmt"
)

// Revoke ends the lease at once.
func (l Lease) Revoke() error {
	if err := l.m.Put(uint32(0), uint64(0)); err != nil {
		return fmt.Errorf("revoke lease: %w", err)
	}
	return nil
}

// LengthsError is the error of routes that the datapath does not look for.
var LengthsError = ErrLengths
