package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// countSlots tells the programs how many slots there are: a load's maps may have other sizes than bpf/maps.h.
func countSlots(spec *ebpf.CollectionSpec) error {
	for variable, name := range map[string]string{bpfVarConfigNatSlots: bpfMapNatSlots, bpfVarConfigPendingSlots: bpfMapPendingSlots} {
		if err := spec.Variables[variable].Set(spec.Maps[name].MaxEntries); err != nil {
			return fmt.Errorf("set %s: %w", variable, err)
		}
	}
	return nil
}

// carrySlots is the carrier of slots. A slot that is in use already is newer. What does not fit has a connection that the agent alone expires.
func carrySlots(from, to *ebpf.Map) (lost int, err error) {
	size := to.MaxEntries()
	failure := readAll(from, func(index *uint32, s *bpfNatSlot) {
		if s.Key.Protocol == 0 || *index >= size {
			return
		}
		var there bpfNatSlot
		e := to.Lookup(index, &there)
		if e == nil && there.Key.Protocol == 0 {
			s.Lock = 0
			e = to.Put(index, s)
		}
		err = errors.Join(err, e)
	})
	return 0, errors.Join(err, failure)
}

// ownerIndexes are the elements of `nat_owners` that a slot of this owner counts in: nat_owner_index and nat_charge of the datapath.
func ownerIndexes(owner uint32) []uint32 {
	const owners = bpfNatOwnersEach
	if owner&ownerExternal == 0 {
		return []uint32{owner % owners}
	}
	return []uint32{owners + owner>>16%owners, 2 * owners}
}

// ownerExternal marks owners outside of the node: NAT_OWNER_EXTERNAL of the datapath. The others' ids are the indexes of pods' devices.
const ownerExternal = 1 << 31

// bpfNatOwnersEach is NAT_OWNERS of the datapath.
const bpfNatOwnersEach = 4096

// recountOwners counts the slots of each owner anew, where some slots were left behind.
func recountOwners(maps *bpfMaps) error {
	counts := make([]bpfNatOwner, maps.NatOwners.MaxEntries())
	count := func(m *ebpf.Map, add func(*bpfNatOwner)) error {
		return readAll(m, func(_ *uint32, s *bpfNatSlot) {
			if s.Key.Protocol == 0 {
				return
			}
			for _, i := range ownerIndexes(s.Owner) {
				add(&counts[i])
			}
		})
	}
	err := errors.Join(
		count(maps.NatSlots, func(o *bpfNatOwner) { o.Established++ }),
		count(maps.PendingSlots, func(o *bpfNatOwner) { o.Pending++ }),
	)
	for i := range counts {
		err = errors.Join(err, maps.NatOwners.Put(uint32(i), &counts[i]))
	}
	if err != nil {
		return fmt.Errorf("count the slots of each owner: %w", err)
	}
	return nil
}
