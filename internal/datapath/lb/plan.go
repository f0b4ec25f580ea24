package lb

import (
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// Ports are written together up to so many backends, and one by one only when that goes wrong: a system call for each entry
// would cost more than all the rest.
const togetherBackends = 8192

// plan is what it takes to set some ports.
type plan struct {
	sets, tables []*item
	claims       []claim
	claimed      map[bpf.Frontend]bool
	conflicts    map[service.PortName]error
	content      []byte // for contents that are being made
}

// claim is a frontend as a port wants it.
type claim struct {
	port  *port
	key   bpf.Frontend
	kind  service.Kind
	value bpf.Service
	// before is what is there now, if anything.
	before  held
	existed bool
}

// differs tells whether the claim has to be written.
func (c claim) differs() bool { return !c.existed || c.before.broken || c.before.value != c.value }

// needs notes an item that has to be written.
func (p *plan) needs(list *[]*item, it *item) {
	if !it.written && it.users == 1 {
		*list = append(*list, it)
	}
}

// set sets ports and notes which of them could not be.
func (s *Services) set(all []service.Port, now time.Time) (changed int) {
	for len(all) > 0 {
		n, backends := 0, 0
		for n < len(all) && (n == 0 || backends < togetherBackends) {
			for _, e := range all[n].Entries {
				backends += 1 + len(e.Internal.Addresses) + len(e.External.Addresses)
			}
			n++
		}
		together := all[:n]
		all = all[n:]
		written, err := s.setTogether(together, now)
		changed += written
		if err == nil {
			continue
		}
		for i := range together {
			written, err := s.setTogether(together[i:i+1], now)
			changed += written
			if err != nil {
				s.retain(together[i])
				s.pendingErrors.note(together[i], err)
			}
		}
	}
	return changed
}

// setTogether sets ports in as few system calls as possible. After an error some of them may be set and others not, but every
// frontend is whole. Conflicts are not errors here: they are noted as troubles.
func (s *Services) setTogether(ports []service.Port, now time.Time) (changed int, err error) {
	plan := &plan{claimed: map[bpf.Frontend]bool{}, conflicts: map[service.PortName]error{}}
	for _, p := range ports {
		if err := check(p); err != nil {
			s.undo(plan, plan.claims, now)
			return 0, err
		}
		s.claim(p, plan)
	}
	changed, err = s.writeContents(ports, plan)
	if err != nil {
		s.undo(plan, plan.claims, now)
		return changed, err
	}
	written, err := s.writeValues(plan, now)
	changed += written
	if err != nil {
		return changed, err
	}
	for _, p := range ports {
		n, err := s.sources.keep(s.ports[p.Name].id, sourcesOf(p))
		changed += n
		s.freed = s.freed || n > 0
		if err != nil {
			return changed, err
		}
		if conflict := plan.conflicts[p.Name]; conflict != nil {
			s.pendingErrors.note(p, conflict)
		} else {
			s.pendingErrors.solved(p.Name)
		}
	}
	return changed, nil
}

// claim plans the entries of one port.
func (s *Services) claim(want service.Port, plan *plan) {
	p := s.ports[want.Name]
	if p == nil {
		p = &port{name: want.Name, id: s.idFor(want)}
		s.ports[want.Name], s.ids[p.id] = p, true
	}
	for _, e := range want.Entries {
		key := frontendOf(e.Frontend)
		h, exists := s.frontends[key]
		if h.port != nil && h.port != p || plan.claimed[key] {
			plan.conflicts[want.Name] = &ConflictError{Frontend: e.Frontend, Holder: h.port.name}
			continue
		}
		c := claim{port: p, key: key, kind: e.Kind, before: h, existed: exists}
		c.value = s.valueOf(e, p.id, plan)
		plan.claims = append(plan.claims, c)
		h.port = p
		s.frontends[key] = h
		plan.claimed[key] = true
	}
}

// idFor gives a number for a new port: that which an earlier agent gave it, if there is one.
func (s *Services) idFor(want service.Port) uint32 {
	if s.adopting {
		for _, e := range want.Entries {
			if h, ok := s.frontends[frontendOf(e.Frontend)]; ok && !s.ids[h.value.Id] && h.value.Id != 0 {
				return h.value.Id
			}
		}
	}
	for s.nextID == 0 || s.ids[s.nextID] { // 0 is for what is no Service's
		s.nextID++
	}
	s.nextID++
	return s.nextID - 1
}

// writeContents writes all that values will refer to.
func (s *Services) writeContents(ports []service.Port, plan *plan) (changed int, err error) {
	n, err := s.sets.write(plan.sets)
	changed += n
	if err != nil {
		return changed, err
	}
	n, err = s.tables.write(plan.tables)
	changed += n
	if err != nil {
		return changed, err
	}
	for _, p := range ports {
		n, err := s.sources.allow(s.ports[p.Name].id, sourcesOf(p))
		changed += n
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// writeValues writes the values that differ and drops the references of the values that they replace.
func (s *Services) writeValues(plan *plan, now time.Time) (changed int, err error) {
	w := table.Writes[bpf.Frontend, bpf.Service]{M: s.services}
	for _, c := range plan.claims {
		if c.differs() {
			w.Add(c.key, c.value)
		}
	}
	done, err := w.Do()
	left := done
	for i, c := range plan.claims {
		if c.differs() {
			if left == 0 {
				s.undo(plan, plan.claims[i:], now)
				return done, table.FullOr(bpf.MapServices, s.services, err, nil)
			}
			left--
		}
		if c.existed {
			s.leave(c.before.value, now)
		}
		s.frontends[c.key] = held{value: c.value, port: c.port, kind: c.kind}
		if c.before.port != c.port {
			c.port.frontends = append(c.port.frontends, c.key)
		}
	}
	return done, nil
}

// retain lets a port that could not be set keep what it has.
func (s *Services) retain(want service.Port) {
	p := s.ports[want.Name]
	if p == nil {
		return
	}
	for _, e := range want.Entries {
		key := frontendOf(e.Frontend)
		if h, ok := s.frontends[key]; ok && h.port == nil && h.value.Id == p.id {
			h.port, h.kind = p, e.Kind
			s.frontends[key] = h
			p.frontends = append(p.frontends, key)
		}
	}
}

// undo takes back what was planned and has not been written.
func (s *Services) undo(plan *plan, claims []claim, now time.Time) {
	for _, c := range claims {
		s.leave(c.value, now)
		if c.existed {
			s.frontends[c.key] = c.before
		} else {
			delete(s.frontends, c.key)
		}
	}
	// No other entry uses what has not been written.
	for _, it := range plan.sets {
		if !it.written {
			s.sets.forget(it)
		}
	}
	for _, it := range plan.tables {
		if !it.written {
			s.tables.forget(it)
		}
	}
}
