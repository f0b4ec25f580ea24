package datapath

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"
)

// sessionShares says which pods of this node sessions are charged to, and how many each may have (bpf/lib/policy/ct_slots.h).
type sessionShares struct {
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
func ringSize(share uint32) uint32 { return share / uint32(bpfCtRingCT_RING_MAX) }

// divide gives each pod that sessions are charged to its share of the table. Where there are more pods than before, those that had more
// than their share lose what is beyond it.
func (s sessionShares) divide(sessions *ebpf.Map) error {
	if sessions.MaxEntries() == 1 {
		return nil // nothing is tracked
	}
	pods := 0
	if err := readAll(s.shares, func(*bpfAddress, *bpfCtShare) { pods++ }); err != nil {
		return fmt.Errorf("read map %s: %w", bpfMapCtShares, err)
	}
	var before uint32
	if err := s.size.Lookup(uint32(0), &before); err != nil {
		return fmt.Errorf("read map %s: %w", bpfMapCtShareSize, err)
	}
	now := shareOf(sessions.MaxEntries(), pods)
	if now == before {
		return nil
	}
	if err := s.size.Put(uint32(0), now); err != nil {
		return fmt.Errorf("write map %s: %w", bpfMapCtShareSize, err)
	}
	if now > before {
		return nil
	}
	return s.clear(sessions, func(_ bpfAddress, slot uint32) bool {
		return slot&(1<<sessionRingShift-1) >= ringSize(now)
	})
}

// sessionRingShift is CT_RING_SHIFT of bpf/types_policy.h.
const sessionRingShift = 24

// clear takes slots back, with the sessions that have them.
func (s sessionShares) clear(sessions *ebpf.Map, which func(pod bpfAddress, slot uint32) bool) error {
	found := map[bpfCtSlot]bpfTuple{}
	err := readAll(s.slots, func(at *bpfCtSlot, key *bpfTuple) {
		if which(at.Pod, at.Slot) {
			found[*at] = *key
		}
	})
	if err != nil {
		return fmt.Errorf("read map %s: %w", bpfMapCtSlots, err)
	}
	for at, key := range found {
		var v bpfCtEntry
		e := sessions.Lookup(key, &v)
		if e == nil && v.Slot == at.Slot {
			e = sessions.Delete(key)
		}
		if e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("remove session beyond its pod's share: %w", e))
		}
		_, e = deleteAll(s.slots, []bpfCtSlot{at})
		err = errors.Join(err, e)
	}
	return err
}
