package fwd

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// Lease is a deadline until which the link-layer addresses in Routes match the kernel's neighbour table. After it the
// kernel resolves each packet, which is correct without an agent but slower.
type Lease struct{ m *ebpf.Map }

// NewLease returns a lease on its map.
func NewLease(m *bpf.Maps) Lease { return Lease{m.NeighLease} }

// Renew extends the lease to d from now.
func (l Lease) Renew(d time.Duration) error {
	now, err := table.Monotonic()
	if err != nil {
		return err
	}
	if err := l.m.Put(uint32(0), uint64(now+d)); err != nil {
		return fmt.Errorf("renew lease: %w", err)
	}
	return nil
}
