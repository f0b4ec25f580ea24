package load

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// countSlots sets the constants for the number of slots, since a load's maps may have other sizes than bpf/maps.h.
func countSlots(spec *ebpf.CollectionSpec) error {
	for variable, name := range map[string]string{bpf.VarConfigNatSlots: bpf.MapNatSlots, bpf.VarConfigPendingSlots: bpf.MapPendingSlots} {
		if err := spec.Variables[variable].Set(spec.Maps[name].MaxEntries); err != nil {
			return fmt.Errorf("set %s: %w", variable, err)
		}
	}
	return nil
}

// natHash is the odd number by which external clients are hashed to owners, of a number that outlives agents.
func natHash(secret uint64) uint32 {
	sum := sha256.Sum256(binary.NativeEndian.AppendUint64([]byte("owners of NAT entries"), secret))
	return binary.NativeEndian.Uint32(sum[:]) | 1
}

// carrySlots is the carrier of slots. A slot in use is newer. Only the agent expires the NAT entries of slots that do
// not fit.
func carrySlots(from, to *ebpf.Map) (lost int, err error) {
	size := to.MaxEntries()
	failure := table.Read(from, func(index *uint32, s *bpf.NatSlot) {
		if s.Key.Protocol == 0 || *index >= size {
			return
		}
		var there bpf.NatSlot
		e := to.Lookup(index, &there)
		if e == nil && there.Key.Protocol == 0 {
			s.Lock = 0
			e = to.Put(index, s)
		}
		err = errors.Join(err, e)
	})
	return 0, errors.Join(err, failure)
}

// ownerIndexes are the elements of `nat_owners` that count a slot of this owner. As nat_owner_index and nat_charge of
// the datapath.
func ownerIndexes(owner uint32) []uint32 {
	const owners = bpfNatOwnersEach
	if owner&ownerExternal == 0 {
		return []uint32{owner % owners}
	}
	return []uint32{owners + owner>>16%owners, 2 * owners}
}

// ownerExternal marks external owners: NAT_OWNER_EXTERNAL of the datapath. Other owners are the ifindexes of pods'
// devices.
const ownerExternal = 1 << 31

// bpfNatOwnersEach is NAT_OWNERS of the datapath.
const bpfNatOwnersEach = 4096

// recountOwners recounts the slots of each owner.
func recountOwners(maps *bpf.Maps) error {
	counts := make([]bpf.NatOwner, maps.NatOwners.MaxEntries())
	count := func(m *ebpf.Map, add func(*bpf.NatOwner)) error {
		return table.Read(m, func(_ *uint32, s *bpf.NatSlot) {
			if s.Key.Protocol == 0 {
				return
			}
			for _, i := range ownerIndexes(s.Owner) {
				add(&counts[i])
			}
		})
	}
	err := errors.Join(
		count(maps.NatSlots, func(o *bpf.NatOwner) { o.Established++ }),
		count(maps.PendingSlots, func(o *bpf.NatOwner) { o.Pending++ }),
	)
	for i := range counts {
		err = errors.Join(err, maps.NatOwners.Put(uint32(i), &counts[i]))
	}
	if err != nil {
		return fmt.Errorf("count the slots of each owner: %w", err)
	}
	return nil
}
