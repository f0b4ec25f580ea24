package conntrack

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// shares charges conntrack entries to the pods of this node and limits each pod (bpf/lib/policy/ct_slots.h).
type shares struct {
	// slots have the keys of entries by pod and slot, shares the pods; size is the number of slots per pod.
	slots, shares, size *ebpf.Map
}

// shareLeast is the least number of slots of a pod, CT_SHARE_MIN of bpf/lib/policy/ct_slots.h. shareDivisor is the
// least number of shares of a table, so that the share does not change with every pod.
const (
	shareLeast   = 16
	shareDivisor = 16
)

// shareOf is the number of slots per pod in a table of this size.
func shareOf(size uint32, pods int) uint32 {
	divisor := uint32(max(shareDivisor, 1<<bits.Len(uint(max(pods, 1)-1))))
	return max(size/divisor, shareLeast)
}

// ringSize is the number of slots of each ring of a share. As ct_ring_size of bpf/lib/policy/ct_slots.h.
func ringSize(share uint32) uint32 { return share / uint32(bpf.CtRingCT_RING_MAX) }

// divide sets the share per pod. If it shrinks, pods lose the entries beyond it.
func (s shares) divide(conntrack *ebpf.Map) error {
	if conntrack.MaxEntries() == 1 {
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
	now := shareOf(conntrack.MaxEntries(), pods)
	if now == before {
		return nil
	}
	if err := s.size.Put(uint32(0), now); err != nil {
		return fmt.Errorf("write map %s: %w", bpf.MapCtShareSize, err)
	}
	if now > before {
		return nil
	}
	return s.clear(conntrack, func(_ bpf.Address, slot uint32) bool {
		return slot&(1<<ringShift-1) >= ringSize(now)
	})
}

// ringShift is CT_RING_SHIFT of bpf/types_policy.h.
const ringShift = 24

// clear frees slots and removes their conntrack entries.
func (s shares) clear(conntrack *ebpf.Map, which func(pod bpf.Address, slot uint32) bool) error {
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
		e := conntrack.Lookup(key, &v)
		if e == nil && v.Slot == at.Slot {
			e = conntrack.Delete(key)
		}
		if e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("remove conntrack entry beyond its pod's share: %w", e))
		}
		_, e = table.Delete(s.slots, []bpf.CtSlot{at})
		err = errors.Join(err, e)
	}
	return err
}
