package datapath

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
)

// ForgetPods removes what the tables of Services and of translation have of addresses whose pods are gone, so that a pod that gets one of them inherits
// nothing: connections and affinities. It says how many entries it removed. Sessions are another matter: see Sessions.Forget.
func (d *Datapath) ForgetPods(gone []netip.Addr) (removed int, err error) {
	removed, err = d.Connections.ForgetPods(gone)
	n, e := d.Services.forgetClients(gone)
	return removed + n, errors.Join(err, e)
}

// Remembered gives the addresses within some ranges of which ForgetPods would remove something, sorted. It reads whole tables.
func (d *Datapath) Remembered(within []netip.Prefix) ([]netip.Addr, error) {
	found := map[netip.Addr]bool{}
	take := func(keys ...bpfAddress) {
		for _, key := range keys {
			a := key.addr()
			if slices.ContainsFunc(within, func(p netip.Prefix) bool { return p.Contains(a) }) {
				found[a] = true
			}
		}
	}
	var err error
	for _, m := range []*ebpf.Map{d.Connections.connections, d.Connections.openings} {
		err = errors.Join(err, readAll(m, func(k *bpfTuple, v *bpfConnection) { take(k.Source, k.Destination, v.Source, v.Destination) }))
	}
	err = errors.Join(err,
		readAll(d.Connections.pods.m, func(k *bpfAddress, _ *uint64) { take(*k) }),
		readAll(d.Services.affinities.here, func(k *bpfClient, _ *bpfAffinity) {
			if k.Kind == uint32(bpfClientKindCLIENT_ADDRESS) {
				take(k.Address)
			}
		}))
	if err != nil {
		return nil, fmt.Errorf("read what is remembered of pods: %w", err)
	}
	return slices.SortedFunc(maps.Keys(found), netip.Addr.Compare), nil
}

// forgetClients removes the affinities of clients with some addresses, and says how many. Sockets of this node are clients by the number of their
// network namespace, which no other one ever gets.
func (s *Services) forgetClients(gone []netip.Addr) (removed int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	addresses := make(map[bpfAddress]bool, len(gone))
	for _, a := range gone {
		addresses[addressOf(a)] = true
	}
	var keys []bpfClient
	err = readAll(s.affinities.here, func(k *bpfClient, _ *bpfAffinity) {
		if k.Kind == uint32(bpfClientKindCLIENT_ADDRESS) && addresses[k.Address] {
			keys = append(keys, *k)
		}
	})
	removed, e := deleteAll(s.affinities.here, keys)
	if err = errors.Join(err, e); err != nil {
		return removed, fmt.Errorf("forget affinities of pods that are gone: %w", err)
	}
	return removed, nil
}
