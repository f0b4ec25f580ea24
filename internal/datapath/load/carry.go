package load

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/policy"
)

// carriers copy the entries of a map to one of another size, for every map that a flag sizes. They return how many
// did not fit.
var carriers = map[string]func(from, to *ebpf.Map) (lost int, err error){
	bpf.MapRoutes:         carry[bpf.RouteKey, bpf.Route],
	bpf.MapServices:       carry[bpf.Frontend, bpf.Service],
	bpf.MapBackends:       carry[bpf.BackendKey, bpf.Backend],
	bpf.MapMaglev:         carry[bpf.MaglevKey, bpf.MaglevBlock],
	bpf.MapAffinities:     carry[bpf.Client, bpf.Affinity],
	bpf.MapAffinitiesExt:  carry[bpf.Client, bpf.Affinity],
	bpf.MapServiceSources: carryOneByOne[bpf.SourceKey, uint8],
	bpf.MapServiceCounts:  carryOneByOne[uint32, []bpf.ServiceCount],
	bpf.MapNat:            carry[bpf.Tuple, bpf.NatEntry],
	bpf.MapNatPending:     carry[bpf.Tuple, bpf.NatEntry],
	bpf.MapNatSlots:       carrySlots,
	bpf.MapPendingSlots:   carrySlots,
	bpf.MapNatPods:        carry[bpf.Address, uint64],
	bpf.MapPolicyPods:     carry[bpf.Address, bpf.PolicyPod],
	bpf.MapIdentities:     carry[bpf.Address, uint32],
	bpf.MapIdentityCidrs:  carry[bpf.IdentityCidrKey, uint32],
	bpf.MapPolicies:       carry[bpf.PolicyKey, uint32],
	bpf.MapPolicyPorts:    carry[bpf.PolicyPortKey, uint32],
	bpf.MapConntrack:      carry[bpf.Tuple, bpf.CtEntry],
	bpf.MapCtSlots:        carry[bpf.CtSlot, bpf.Tuple],
}

// carriedTwice are the maps that the old programs write until the new ones replace them: Commit copies what has been
// added since Open.
var carriedTwice = []string{
	bpf.MapAffinities, bpf.MapAffinitiesExt, bpf.MapNat, bpf.MapNatPending, bpf.MapNatSlots, bpf.MapPendingSlots, bpf.MapNatPods, bpf.MapServiceCounts, bpf.MapConntrack, bpf.MapCtSlots,
}

// carryOver copies the entries of resized maps to the new ones. Entries that exist already are newer. It skips maps
// that the configuration does not use.
func (o *Objects) carryOver(names []string) error {
	for _, name := range names {
		from, to := o.Resized[name], o.ByName[name]
		if from == nil || to.MaxEntries() == 1 {
			continue
		}
		lost, err := carriers[name](from, to)
		if err != nil {
			return fmt.Errorf("copy entries of map %s: %w", name, err)
		}
		if lost > 0 {
			o.Log.Warn("entries do not fit the smaller map", "map", name, "size", to.MaxEntries(), "lost", lost)
		}
		if lost > 0 && slices.Contains(PolicyMaps, name) {
			if err := isolateAll(o.Maps.PolicyPods); err != nil {
				return err
			}
		}
	}
	return nil
}

// recount recounts the slots of each owner if the counters may be wrong: slots were not copied, or the counters are
// new.
func (o *Objects) recount() error {
	resized := o.Resized[bpf.MapNatSlots] != nil || o.Resized[bpf.MapPendingSlots] != nil
	adopted := !slices.Contains(o.Fresh, bpf.MapNatSlots) || !slices.Contains(o.Fresh, bpf.MapPendingSlots)
	if resized || adopted && slices.Contains(o.Fresh, bpf.MapNatOwners) {
		return recountOwners(&o.Maps)
	}
	return nil
}

func carry[K, V any](from, to *ebpf.Map) (lost int, err error) {
	failure := table.Read(from, func(k *K, v *V) {
		n, e := put(to, k, v)
		lost += n
		err = errors.Join(err, e)
	})
	return lost, errors.Join(err, failure)
}

// carryOneByOne is for map types without batch operations and for per-CPU values. Only the agent deletes their
// entries.
func carryOneByOne[K, V any](from, to *ebpf.Map) (lost int, err error) {
	var key K
	var value V
	it := from.Iterate()
	for it.Next(&key, &value) {
		n, e := put(to, &key, &value)
		lost += n
		err = errors.Join(err, e)
	}
	return lost, errors.Join(err, it.Err())
}

func put[K, V any](to *ebpf.Map, k *K, v *V) (lost int, err error) {
	var value any = v
	if perCPU, ok := value.(*[]bpf.ServiceCount); ok {
		value = *perCPU // the library takes the slice itself
	}
	err = to.Update(k, value, ebpf.UpdateNoExist)
	switch {
	case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENOSPC): // ENOSPC from a trie
		return 1, nil
	case errors.Is(err, ebpf.ErrKeyExist):
		return 0, nil
	}
	return 0, err
}

// isolateAll sets the isolated directions of every pod in the map to deny-all, since their rule sets are incomplete.
func isolateAll(m *ebpf.Map) error {
	var pods table.Writes[bpf.Address, bpf.PolicyPod]
	pods.M = m
	err := table.Read(m, func(k *bpf.Address, v *bpf.PolicyPod) {
		for _, set := range []*uint32{&v.Ingress, &v.Egress} {
			if *set != uint32(policy.NotIsolated) {
				*set = uint32(policy.DenyAll)
			}
		}
		pods.Add(*k, *v)
	})
	if err == nil {
		_, err = pods.Do()
	}
	if err != nil {
		return fmt.Errorf("isolate pods of map %s: %w", bpf.MapPolicyPods, err)
	}
	return nil
}
