package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// affinitiesEvery is the interval of looking for expired affinities. They are harmless: the datapath checks their
// age, and a full map evicts the least recently used.
const affinitiesEvery = time.Minute

// affinities map a client to its last backend. Clients on this node, sockets and pods, have their own map, which no
// external packet fills.
type affinities struct{ here, outside *ebpf.Map }

// read calls visit for every entry, as Read.
func (a affinities) read(visit func(*bpf.Client, *bpf.Affinity)) error {
	if err := errors.Join(table.Read(a.here, visit), table.Read(a.outside, visit)); err != nil {
		return fmt.Errorf("read maps %s and %s: %w", bpf.MapAffinities, bpf.MapAffinitiesExt, err)
	}
	return nil
}

// sweepAffinities deletes expired affinities and those of deleted Services.
func (s *Services) sweepAffinities(now time.Time) error {
	if now.Sub(s.swept) < affinitiesEvery || s.adopting {
		return nil
	}
	s.swept = now
	clock, err := table.Monotonic()
	if err != nil {
		return err
	}
	lasts := map[uint32]time.Duration{}
	for _, h := range s.frontends {
		if h.value.Affinity > 0 {
			lasts[h.value.Id] = time.Duration(h.value.Affinity) * time.Second
		}
	}
	expired := func(k bpf.Client, v bpf.Affinity) bool {
		return time.Duration(v.Used)+lasts[k.Service] < clock
	}
	for name, m := range map[string]*ebpf.Map{bpf.MapAffinities: s.affinities.here, bpf.MapAffinitiesExt: s.affinities.outside} {
		if e := deleteAffinities(m, expired); e != nil {
			err = errors.Join(err, fmt.Errorf("delete expired entries of map %s: %w", name, e))
		}
	}
	return err
}

func deleteAffinities(m *ebpf.Map, expired func(bpf.Client, bpf.Affinity) bool) error {
	var keys []bpf.Client
	err := table.Read(m, func(k *bpf.Client, v *bpf.Affinity) {
		if expired(*k, *v) {
			keys = append(keys, *k)
		}
	})
	for _, k := range keys {
		var v bpf.Affinity
		e := m.Lookup(k, &v)
		if e == nil && expired(k, v) { // the client has not returned meanwhile
			e = m.Delete(k)
		}
		if e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// ForgetClients removes the affinities of client addresses and returns how many. Local sockets are clients by their
// network namespace cookie, which is never reused.
func (s *Services) ForgetClients(gone []netip.Addr) (removed int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	addresses := make(map[bpf.Address]bool, len(gone))
	for _, a := range gone {
		addresses[bpf.AddressOf(a)] = true
	}
	var keys []bpf.Client
	err = table.Read(s.affinities.here, func(k *bpf.Client, _ *bpf.Affinity) {
		if k.Kind == uint32(bpf.ClientKindCLIENT_ADDRESS) && addresses[k.Address] {
			keys = append(keys, *k)
		}
	})
	removed, e := table.Delete(s.affinities.here, keys)
	if err = errors.Join(err, e); err != nil {
		return removed, fmt.Errorf("forget affinities of pods that are gone: %w", err)
	}
	return removed, nil
}

// Clients calls visit for each local client with an affinity, possibly more than once.
func (s *Services) Clients(visit func(netip.Addr)) error {
	return table.Read(s.affinities.here, func(k *bpf.Client, _ *bpf.Affinity) {
		if k.Kind == uint32(bpf.ClientKindCLIENT_ADDRESS) {
			visit(k.Address.Addr())
		}
	})
}
