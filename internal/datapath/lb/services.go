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

// Services are the tables by which connections to a Service get a backend. The agent is their only writer; its methods may be
// called from several goroutines.
//
// What a frontend does is one value in one map, which is replaced as a whole; sets of backends and tables of consistent
// hashing are written before a value refers to them, never changed, and deleted some time after the last reference. So at any
// moment, also when the agent is killed, each frontend has its old backends or its new ones.
//
// A Service port that cannot be had as it should be is a PortError, of which the cause may be a FullError or a ConflictError.
// It keeps what it had before, and the others are not affected. Sync, Apply and Sweep try these ports again and return all the
// errors that still stand.
type Services struct {
	mu         sync.Mutex
	services   *ebpf.Map
	counts     *ebpf.Map
	affinities affinities
	sets       backendSets
	tables     maglevTables
	sources    serviceSources
	maglevSize int // 0: by the number of backends

	recovered bool
	adopting  bool     // no Sync has come since
	strangers []uint32 // numbers that an earlier agent gave
	// frontends is what the map `services` holds.
	frontends     map[bpf.Frontend]held
	ports         map[service.PortName]*port
	ids           map[uint32]bool // of ports
	nextID        uint32
	gone          []goneID // numbers of ports that are no more
	freed         bool     // since ports in trouble have been tried
	swept         time.Time
	pendingErrors pendingErrors
}

// held is one entry of the map `services`. Without a port, nobody has claimed it (yet).
type held struct {
	value bpf.Service
	port  *port
	kind  service.Kind
	// broken says that the value refers to something that is not there, and has to be written anew.
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
		sets:       backendSets{newInterned(), m.Backends},
		tables:     maglevTables{newInterned(), m.Maglev},
		sources:    serviceSources{m: m.ServiceSources},
		maglevSize: maglevSize,
		frontends:  map[bpf.Frontend]held{},
		ports:      map[service.PortName]*port{},
		ids:        map[uint32]bool{},
		nextID:     1,
	}
}

// Sync makes the tables hold all and nothing else, touching only what differs, and says how many entries it touched. Where two
// ports want one frontend, the first one of them has it.
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

// Apply makes changes: a port in set takes the place of that with its name, and those in removed go. A frontend that a port
// has remains with it until it gives it up.
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
	s.retry(now) // one that waits for a frontend takes it over
	_, e := s.deleteLoose(loose, now)
	s.retry(now)
	return errors.Join(err, e, s.pendingErrors.err())
}

// Sweep deletes what nothing refers to any more and what has expired. Call it every few seconds.
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

// drop gives a port up, and gives the frontends that nobody has claimed since.
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

// loosen lets go of the frontends that a port is about to give up, so that another one of the same change can have them.
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

// deleteLoose deletes those of the frontends that nobody has claimed.
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

// leave takes the references of a value away.
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

// sweep deletes what has had no reference for the time of grace, and what has expired.
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
