// Package lb keeps the tables of Services: frontends, sets of backends, Maglev tables, source ranges, affinities and counters. It also destroys
// UDP sockets whose backend is gone.
package lb

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// Services are the maps that translate Services. The agent is their only writer; methods are safe for concurrent use.
//
// Each frontend is one value in one map, which is replaced as a whole. Backend sets and Maglev tables are written
// before a value refers to them, never changed, and deleted some time after the last reference. So at any time, also
// when the agent is killed, each frontend has its old or its new backends.
//
// A Service port that cannot be applied is a PortError, caused for example by a FullError or a ConflictError. It
// keeps its old state, and other ports are not affected. Sync, Apply and Sweep try these ports again and return all
// pending errors.
type Services struct {
	mu         sync.Mutex
	services   *ebpf.Map
	counts     *ebpf.Map
	affinities affinities
	sets       interned[bpf.BackendKey, bpf.Backend]
	tables     interned[bpf.MaglevKey, bpf.MaglevBlock]
	sources    serviceSources
	maglevSize int // 0: by the number of backends

	recovered bool
	adopting  bool     // no Sync yet
	strangers []uint32 // ids of an earlier agent
	// frontends mirrors the map `services`.
	frontends     map[bpf.Frontend]held
	ports         map[service.PortName]*port
	ids           map[uint32]bool // of ports
	nextID        uint32
	gone          []goneID // ids of deleted ports
	freed         bool     // since failed ports were last tried
	swept         time.Time
	pendingErrors pendingErrors
}

// held is one entry of the map `services`. Without a port it is not claimed (yet).
type held struct {
	value bpf.Service
	port  *port
	kind  service.Kind
	// broken: the value has a missing reference and must be rewritten.
	broken bool
}

// port is one port of one Service.
type port struct {
	name      service.PortName
	id        uint32
	frontends []bpf.Frontend
}

type goneID struct {
	id    uint32
	since time.Time
}

func New(m *bpf.Maps, maglevSize int) *Services {
	return &Services{
		services:   m.Services,
		counts:     m.ServiceCounts,
		affinities: affinities{here: m.Affinities, outside: m.AffinitiesExt},
		sets:       backendSets(m.Backends),
		tables:     maglevTables(m.Maglev),
		sources:    serviceSources{m: m.ServiceSources},
		maglevSize: maglevSize,
		frontends:  map[bpf.Frontend]held{},
		ports:      map[service.PortName]*port{},
		ids:        map[uint32]bool{},
		nextID:     1,
	}
}

// Sync makes the maps equal to all, writing only differences, and returns how many entries it changed. If two ports
// want one frontend, the first one gets it.
func (s *Services) Sync(all []service.Port) (changed int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	changed, err = s.recover()
	if err != nil {
		return changed, err
	}
	n, err := s.sweep(now)
	changed += n

	wanted := make(map[service.PortName]bool, len(all))
	for _, p := range all {
		wanted[p.Name] = true
	}
	for name := range s.ports {
		if !wanted[name] {
			s.drop(name, now)
		}
	}
	for _, p := range s.ports {
		p.frontends = p.frontends[:0]
	}
	loose := make([]bpf.Frontend, 0, len(s.frontends))
	for key, h := range s.frontends {
		h.port = nil
		s.frontends[key] = h
		loose = append(loose, key)
	}
	s.pendingErrors.clear()
	n = s.set(all, now)
	changed += n
	n, e := s.deleteLoose(loose, now)
	changed += n
	err = errors.Join(err, e)
	changed += s.retry(now)
	s.adopted()
	return changed, errors.Join(err, s.pendingErrors.err())
}

// Apply applies changes: a port in set replaces the one with its name, and those in removed are deleted. A frontend
// stays with its port until that gives it up.
func (s *Services) Apply(set []service.Port, removed []service.PortName) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if _, err := s.recover(); err != nil {
		return err
	}
	_, err := s.sweep(now)
	var loose []bpf.Frontend
	for _, name := range removed {
		loose = append(loose, s.drop(name, now)...)
		s.pendingErrors.solved(name)
	}
	for _, p := range set {
		loose = append(loose, s.loosen(p)...)
	}
	s.set(set, now)
	s.freed = s.freed || len(loose) > 0
	s.retry(now) // a port that waits for a frontend takes it over
	_, e := s.deleteLoose(loose, now)
	s.retry(now)
	return errors.Join(err, e, s.pendingErrors.err())
}

// Sweep deletes unreferenced and expired entries. Call it every few seconds.
func (s *Services) Sweep(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.recover(); err != nil {
		return err
	}
	_, err := s.sweep(now)
	s.retry(now)
	return errors.Join(err, s.pendingErrors.err())
}

// drop deletes a port and its frontends that no other port has claimed since.
func (s *Services) drop(name service.PortName, now time.Time) (loose []bpf.Frontend) {
	p := s.ports[name]
	if p == nil {
		return nil
	}
	for _, key := range p.frontends {
		h := s.frontends[key]
		h.port = nil
		s.frontends[key] = h
	}
	delete(s.ports, name)
	delete(s.ids, p.id)
	s.gone = append(s.gone, goneID{p.id, now})
	return p.frontends
}

// loosen releases the frontends that a port is about to give up, for other ports of the same change.
func (s *Services) loosen(want service.Port) (loose []bpf.Frontend) {
	p := s.ports[want.Name]
	if p == nil {
		return nil
	}
	keeps := map[bpf.Frontend]bool{}
	for _, e := range want.Entries {
		keeps[frontendOf(e.Frontend)] = true
	}
	rest := p.frontends[:0]
	for _, key := range p.frontends {
		if keeps[key] {
			rest = append(rest, key)
			continue
		}
		h := s.frontends[key]
		h.port = nil
		s.frontends[key] = h
		loose = append(loose, key)
	}
	p.frontends = rest
	return loose
}

// deleteLoose deletes those of the frontends that are unclaimed.
func (s *Services) deleteLoose(loose []bpf.Frontend, now time.Time) (deleted int, err error) {
	for _, key := range loose {
		h, ok := s.frontends[key]
		if !ok || h.port != nil {
			continue
		}
		if e := s.services.Delete(key); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("delete frontend %s: %w", describe(serviceFrontend(key)), e))
			continue
		}
		delete(s.frontends, key)
		s.leave(h.value, now)
		s.freed = true
		deleted++
	}
	return deleted, err
}

// leave removes the references of a value.
func (s *Services) leave(v bpf.Service, now time.Time) {
	for _, side := range []bpf.BackendSet{v.Internal, v.External} {
		if side.Count > 0 {
			s.sets.leave(side.Id, now)
		}
		if side.MaglevSize > 0 {
			s.tables.leave(side.Maglev, now)
		}
	}
}

// sweep deletes what has been unreferenced for longer than grace, and what has expired.
func (s *Services) sweep(now time.Time) (deleted int, err error) {
	n, e := s.sets.sweep(now)
	deleted, err = deleted+n, errors.Join(err, e)
	n, e = s.tables.sweep(now)
	deleted, err = deleted+n, errors.Join(err, e)
	var later []goneID
	for _, g := range s.gone {
		switch {
		case s.ids[g.id]:
		case now.Sub(g.since) < grace:
			later = append(later, g)
		default:
			n, e := s.sources.keep(g.id, nil)
			deleted, err = deleted+n, errors.Join(err, e)
			n, e = table.Delete(s.counts, []uint32{g.id})
			deleted, err = deleted+n, errors.Join(err, e)
		}
	}
	s.gone = later
	s.freed = s.freed || deleted > 0
	return deleted, errors.Join(err, s.sweepAffinities(now))
}
