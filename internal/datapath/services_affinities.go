package datapath

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// affinitiesEvery is how often expired affinities are looked for. They do no harm: the datapath sees how old they are, and
// the least used ones go first when there is no room.
const affinitiesEvery = time.Minute

// sweepAffinities deletes the affinities of clients that have not come back in time, and of Services that are gone.
func (s *Services) sweepAffinities(now time.Time) error {
	if now.Sub(s.swept) < affinitiesEvery || s.adopting {
		return nil
	}
	s.swept = now
	clock, err := Monotonic()
	if err != nil {
		return err
	}
	lasts := map[uint32]time.Duration{}
	for _, h := range s.frontends {
		if h.value.Affinity > 0 {
			lasts[h.value.Id] = time.Duration(h.value.Affinity) * time.Second
		}
	}
	expired := func(k bpfClient, v bpfAffinity) bool {
		return time.Duration(v.Used)+lasts[k.Service] < clock
	}
	var keys []bpfClient
	err = readAll(s.affinities, func(k *bpfClient, v *bpfAffinity) {
		if expired(*k, *v) {
			keys = append(keys, *k)
		}
	})
	for _, k := range keys {
		var v bpfAffinity
		e := s.affinities.Lookup(k, &v)
		if e == nil && expired(k, v) { // the client has not come in between
			e = s.affinities.Delete(k)
		}
		if e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("delete expired entries of map %s: %w", bpfMapAffinities, err)
	}
	return nil
}
