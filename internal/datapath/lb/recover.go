package lb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// recover reads the state of an earlier agent, once. Values stay until a change is requested; sets and tables without
// a reference are deleted.
func (s *Services) recover() (deleted int, err error) {
	if s.recovered {
		return 0, nil
	}
	// A failed attempt is repeated from the start.
	s.frontends, s.strangers = map[bpf.Frontend]held{}, nil
	s.sets.clear()
	s.tables.clear()
	err = table.Read(s.services, func(k *bpf.Frontend, v *bpf.Service) {
		s.frontends[*k] = held{value: *v}
		s.stranger(v.Id)
	})
	if err != nil {
		return 0, fmt.Errorf("read map %s: %w", bpf.MapServices, err)
	}
	deleted, err = s.recoverSets()
	if err != nil {
		return deleted, fmt.Errorf("recover map %s: %w", bpf.MapBackends, err)
	}
	n, err := s.recoverTables(s.tablesReferred())
	deleted += n
	if err != nil {
		return deleted, fmt.Errorf("recover map %s: %w", bpf.MapMaglev, err)
	}
	for key, h := range s.frontends {
		for _, side := range []bpf.BackendSet{h.value.Internal, h.value.External} {
			h.broken = s.refer(side) || h.broken
		}
		s.frontends[key] = h
	}
	if err := s.recoverNumbers(); err != nil {
		return deleted, err
	}
	s.recovered, s.adopting = true, true
	return deleted, nil
}

// tablesReferred returns the contents of referenced tables by id.
func (s *Services) tablesReferred() map[uint32]string {
	contents := map[uint32]string{}
	for _, h := range s.frontends {
		for _, side := range []bpf.BackendSet{h.value.Internal, h.value.External} {
			if set := s.sets.byID[side.Id]; side.MaglevSize > 0 && set != nil {
				contents[side.Maglev] = string(packTable(nil, int(side.MaglevSize), unpack(set.content)))
			}
		}
	}
	return contents
}

// refer adds the references of one side of a value, and reports whether any are missing.
func (s *Services) refer(side bpf.BackendSet) (broken bool) {
	if side.Count > 0 {
		set := s.sets.byID[side.Id]
		broken = set == nil || set.entries != int(side.Count)
		s.sets.again(side.Id)
	}
	if side.MaglevSize > 0 {
		broken = broken || s.tables.byID[side.Maglev] == nil
		s.tables.again(side.Maglev)
	}
	return broken
}

// recoverNumbers finds the ids in use, so that no new Service gets stale state.
func (s *Services) recoverNumbers() error {
	if err := s.sources.recover(); err != nil {
		return err
	}
	for id := range s.sources.has {
		s.stranger(id)
	}
	// A walk that the datapath's own writes disturb starts again: it must not miss existing entries.
	var key any
	for {
		next, err := s.counts.NextKeyBytes(key)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("read map %s: %w", bpf.MapServiceCounts, err)
		}
		if next == nil {
			break
		}
		s.stranger(nativeUint32(next))
		key = next
	}
	return s.affinities.read(func(k *bpf.Client, v *bpf.Affinity) {
		s.nextID = max(s.nextID, k.Service+1)
		s.sets.avoid(v.Set)
	})
}

func (s *Services) stranger(id uint32) {
	s.strangers = append(s.strangers, id)
	s.nextID = max(s.nextID, id+1)
}

// Backends returns the backends of all frontends, including an earlier agent's, each once.
func (s *Services) Backends() ([]service.Backend, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.recover(); err != nil {
		return nil, err
	}
	type from struct {
		set      uint32
		protocol uint8
	}
	seen, has := map[from]bool{}, map[service.Backend]bool{}
	for key, h := range s.frontends {
		for _, side := range []bpf.BackendSet{h.value.Internal, h.value.External} {
			set, at := s.sets.byID[side.Id], from{side.Id, key.Protocol}
			if side.Count == 0 || set == nil || seen[at] {
				continue
			}
			seen[at] = true
			for _, b := range unpack(set.content) {
				has[service.Backend{Address: b, Protocol: cluster.Protocol(key.Protocol)}] = true
			}
		}
	}
	return slices.Collect(maps.Keys(has)), nil
}

// adopted ends the adoption with the first Sync: unclaimed frontends are deleted.
func (s *Services) adopted() {
	if !s.adopting {
		return
	}
	s.adopting = false
	for _, id := range s.strangers {
		if !s.ids[id] {
			s.gone = append(s.gone, goneID{id, time.Time{}})
		}
	}
	s.strangers = nil
}
