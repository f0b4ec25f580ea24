package conntrack

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// shares says which pods of this node sessions are charged to, and how many each may have (bpf/lib/policy/ct_slots.h).
type shares struct {
	// slots have the keys of sessions by pod and slot, shares the pods; size is how many slots each of them has.
	slots, shares, size *ebpf.Map
}

// shareLeast is how many slots a pod has at least, and shareDivisor into how many shares a table is divided at least: what a pod may have does
// not change with every other one. The former is CT_SHARE_MIN of bpf/lib/policy/ct_slots.h.
const (
	shareLeast   = 16
	shareDivisor = 16
)

// shareOf gives how many slots each of so many pods has in a table of this size.
func shareOf(size uint32, pods int) uint32 {
	divisor := uint32(max(shareDivisor, 1<<bits.Len(uint(max(pods, 1)-1))))
	return max(size/divisor, shareLeast)
}

// ringSize gives how many slots each ring of a share has. As ct_ring_size of bpf/lib/policy/ct_slots.h.
func ringSize(share uint32) uint32 { return share / uint32(bpf.CtRingCT_RING_MAX) }

// divide gives each pod that sessions are charged to its share of the table. Where there are more pods than before, those that had more
// than their share lose what is beyond it.
func (s shares) divide(sessions *ebpf.Map) error {
	if sessions.MaxEntries() == 1 {
		return nil // nothing is tracked
	}
	pods := 0
	if err := table.Read(s.shares, func(*bpf.Address, *bpf.CtShare) { pods++ }); err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MapCtShares, err)
	}
	var before uint32
	if err := s.size.Lookup(uint32(0), &before); err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MapCtShareSize, err)
	}
	now := shareOf(sessions.MaxEntries(), pods)
	if now == before {
		return nil
	}
	if err := s.size.Put(uint32(0), now); err != nil {
		return fmt.Errorf("write map %s: %w", bpf.MapCtShareSize, err)
	}
	if now > before {
		return nil
	}
	return s.clear(sessions, func(_ bpf.Address, slot uint32) bool {
		return slot&(1<<ringShift-1) >= ringSize(now)
	})
}

// ringShift is CT_RING_SHIFT of bpf/types_policy.h.
const ringShift = 24

// clear takes slots back, with the sessions that have them.
func (s shares) clear(sessions *ebpf.Map, which func(pod bpf.Address, slot uint32) bool) error {
	found := map[bpf.CtSlot]bpf.Tuple{}
	err := table.Read(s.slots, func(at *bpf.CtSlot, key *bpf.Tuple) {
		if which(at.Pod, at.Slot) {
			found[*at] = *key
		}
	})
	if err != nil {
		return fmt.Errorf("read map %s: %w", bpf.MapCtSlots, err)
	}
	for at, key := range found {
		var v bpf.CtEntry
		e := sessions.Lookup(key, &v)
		if e == nil && v.Slot == at.Slot {
			e = sessions.Delete(key)
		}
		if e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("remove session beyond its pod's share: %w", e))
		}
		_, e = table.Delete(s.slots, []bpf.CtSlot{at})
		err = errors.Join(err, e)
	}
	return err
}
