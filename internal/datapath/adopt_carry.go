package datapath

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/policy"
)

// carriers carry the entries of a map over to one of another size, for every map that a flag sizes. They say how many did not fit.
var carriers = map[string]func(from, to *ebpf.Map) (lost int, err error){
	bpfMapRoutes:         carry[bpfRouteKey, bpfRoute],
	bpfMapServices:       carry[bpfFrontend, bpfService],
	bpfMapBackends:       carry[bpfBackendKey, bpfBackend],
	bpfMapMaglev:         carry[bpfMaglevKey, bpfMaglevBlock],
	bpfMapAffinities:     carry[bpfClient, bpfAffinity],
	bpfMapAffinitiesExt:  carry[bpfClient, bpfAffinity],
	bpfMapServiceSources: carryOneByOne[bpfSourceKey, uint8],
	bpfMapServiceCounts:  carryOneByOne[uint32, []bpfServiceCount],
	bpfMapNat:            carry[bpfTuple, bpfNatEntry],
	bpfMapNatPending:     carry[bpfTuple, bpfNatEntry],
	bpfMapNatSlots:       carrySlots,
	bpfMapPendingSlots:   carrySlots,
	bpfMapNatPods:        carry[bpfAddress, uint64],
	bpfMapPolicyPods:     carry[bpfAddress, bpfPolicyPod],
	bpfMapIdentities:     carry[bpfAddress, uint32],
	bpfMapIdentityCidrs:  carry[bpfIdentityCidrKey, uint32],
	bpfMapPolicies:       carry[bpfPolicyKey, uint32],
	bpfMapPolicyPorts:    carry[bpfPolicyPortKey, uint32],
	bpfMapConntrack:      carry[bpfTuple, bpfCtEntry],
	bpfMapCtSlots:        carry[bpfCtSlot, bpfTuple],
}

// carriedTwice are the maps that the old programs write until the new ones have taken their place: what has come since the first
// time is carried over then.
var carriedTwice = []string{
	bpfMapAffinities, bpfMapAffinitiesExt, bpfMapNat, bpfMapNatPending, bpfMapNatSlots, bpfMapPendingSlots, bpfMapNatPods, bpfMapServiceCounts, bpfMapConntrack, bpfMapCtSlots,
}

// carryOver carries the entries of maps that are replaced over to the new ones. Entries that are there already are newer.
// A map that the configuration has no use for is left alone.
func (o *objects) carryOver(names []string) error {
	for _, name := range names {
		from, to := o.resized[name], o.byName[name]
		if from == nil || to.MaxEntries() == 1 {
			continue
		}
		lost, err := carriers[name](from, to)
		if err != nil {
			return fmt.Errorf("carry entries of map %s over: %w", name, err)
		}
		if lost > 0 {
			o.log.Warn("entries do not fit the smaller map", "map", name, "size", to.MaxEntries(), "lost", lost)
		}
		if lost > 0 && slices.Contains(policyMaps, name) {
			if err := isolateAll(o.maps.PolicyPods); err != nil {
				return err
			}
		}
	}
	return nil
}

// recount counts the slots of each owner where the counters do not belong to the slots: slots were left behind, or the counters are new.
func (o *objects) recount() error {
	resized := o.resized[bpfMapNatSlots] != nil || o.resized[bpfMapPendingSlots] != nil
	adopted := !slices.Contains(o.fresh, bpfMapNatSlots) || !slices.Contains(o.fresh, bpfMapPendingSlots)
	if resized || adopted && slices.Contains(o.fresh, bpfMapNatOwners) {
		return recountOwners(&o.maps)
	}
	return nil
}

func carry[K, V any](from, to *ebpf.Map) (lost int, err error) {
	failure := readAll(from, func(k *K, v *V) {
		n, e := put(to, k, v)
		lost += n
		err = errors.Join(err, e)
	})
	return lost, errors.Join(err, failure)
}

// carryOneByOne is for the kinds of maps that have no batches or values for each CPU. Only the agent deletes from them.
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
	if perCPU, ok := value.(*[]bpfServiceCount); ok {
		value = *perCPU // the library wants the slice itself
	}
	err = to.Update(k, value, ebpf.UpdateNoExist)
	switch {
	case errors.Is(err, unix.E2BIG), errors.Is(err, unix.ENOSPC): // the latter of a trie
		return 1, nil
	case errors.Is(err, ebpf.ErrKeyExist):
		return 0, nil
	}
	return 0, err
}

// isolateAll denies all traffic of the isolated directions of every pod in the map: their sets are not complete.
func isolateAll(m *ebpf.Map) error {
	var pods writes[bpfAddress, bpfPolicyPod]
	pods.m = m
	err := readAll(m, func(k *bpfAddress, v *bpfPolicyPod) {
		for _, set := range []*uint32{&v.Ingress, &v.Egress} {
			if *set != uint32(policy.NotIsolated) {
				*set = uint32(policy.Closed)
			}
		}
		pods.add(*k, *v)
	})
	if err == nil {
		_, err = pods.do()
	}
	if err != nil {
		return fmt.Errorf("close pods of map %s: %w", bpfMapPolicyPods, err)
	}
	return nil
}
