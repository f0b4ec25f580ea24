package fwd

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Lease is a deadline until which the link-layer addresses in Routes match the kernel's neighbour table. After it the
// kernel resolves each packet, which is correct without an agent but slower.
type Lease struct{ m *ebpf.Map }

// NewLease returns a lease on its map.
func NewLease(m *bpf.Maps) Lease { return Lease{m.NeighLease} }

// Renew extends the lease to d from now.
func (l Lease) Renew(d time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read monotonic clock: %w", err)
	}
	if err := l.m.Put(uint32(0), uint64(now.Nano()+d.Nanoseconds())); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}
