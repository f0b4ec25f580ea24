package lb

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// ServicePort is one port of one Service as the kernel has it, with what became of connections to it.
type ServicePort struct {
	service.Port
	ID    uint32
	Count ServiceCount
}

// ServiceCount counts connections to one port of one Service since its first one.
type ServiceCount struct {
	// Table got a backend; Refused did not, for want of one or because of their source.
	Connections, Rejected uint64
}

// names is what the kernel does not have: whose a frontend and a number are.
type names struct {
	ports     map[uint32]service.PortName
	frontends map[bpf.Frontend]frontendName
	sources   map[uint32][]netip.Prefix
}

type frontendName struct {
	id   uint32
	kind service.Kind
}

// names copies the names, so that reading maps, which takes a while, does not block changes of Services.
func (s *Services) names() (names, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.recover(); err != nil {
		return names{}, err
	}
	n := names{
		ports:     make(map[uint32]service.PortName, len(s.ports)),
		frontends: make(map[bpf.Frontend]frontendName, len(s.frontends)),
		sources:   make(map[uint32][]netip.Prefix, len(s.sources.has)),
	}
	for name, p := range s.ports {
		n.ports[p.id] = name
	}
	for key, h := range s.frontends {
		if h.port != nil {
			n.frontends[key] = frontendName{h.port.id, h.kind}
		}
	}
	for id := range s.sources.has {
		n.sources[id] = s.sources.of(id)
	}
	return n, nil
}

// All reads the tables back, sorted by the name of the Service. Frontends that no Service has claimed are not in it.
func (s *Services) All() ([]ServicePort, error) {
	names, err := s.names()
	if err != nil {
		return nil, err
	}
	counts, err := s.readCounts()
	if err != nil {
		return nil, err
	}
	type found struct {
		key   bpf.Frontend
		value bpf.Service
	}
	var frontends []found
	err = table.Read(s.services, func(k *bpf.Frontend, v *bpf.Service) { frontends = append(frontends, found{*k, *v}) })
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MapServices, err)
	}
	// What a value refers to outlives it by the time of grace.
	sets, err := s.readSets()
	if err != nil {
		return nil, err
	}
	all := make([]ServicePort, 0, len(names.ports))
	at := make(map[uint32]int, len(names.ports))
	for id, name := range names.ports {
		at[id] = len(all)
		all = append(all, ServicePort{Port: service.Port{Name: name}, ID: id, Count: counts[id]})
	}
	for _, f := range frontends {
		if name, ok := names.frontends[f.key]; ok {
			p := &all[at[name.id]]
			p.Entries = append(p.Entries, entryOf(f.key, f.value, name.kind, sets, names.sources))
		}
	}
	for _, p := range all {
		slices.SortFunc(p.Entries, func(a, b service.Entry) int { return compareFrontends(a.Frontend, b.Frontend) })
	}
	slices.SortFunc(all, func(a, b ServicePort) int { return comparePorts(a.Name, b.Name) })
	return all, nil
}

// readCounts gives the counts by number, summed over the CPUs.
func (s *Services) readCounts() (map[uint32]ServiceCount, error) {
	all := map[uint32]ServiceCount{}
	var id uint32
	var perCPU []bpf.ServiceCount
	it := s.counts.Iterate()
	for it.Next(&id, &perCPU) {
		var sum ServiceCount
		for _, c := range perCPU {
			sum.Connections += c.Connections
			sum.Rejected += c.Rejected
		}
		all[id] = sum
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MapServiceCounts, err)
	}
	return all, nil
}

// readSets gives the backends of every set.
func (s *Services) readSets() (map[uint32][]netip.AddrPort, error) {
	sets := map[uint32][]netip.AddrPort{}
	err := table.Read(s.sets.m, func(k *bpf.BackendKey, v *bpf.Backend) {
		set := sets[k.Set]
		if missing := int(k.Index) + 1 - len(set); missing > 0 {
			set = append(set, make([]netip.AddrPort, missing)...)
			sets[k.Set] = set
		}
		set[k.Index] = netip.AddrPortFrom(v.Address.Addr(), bpf.NetworkOrder(v.Port))
	})
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MapBackends, err)
	}
	return sets, nil
}

// entryOf is the inverse of valueOf.
func entryOf(k bpf.Frontend, v bpf.Service, kind service.Kind, sets map[uint32][]netip.AddrPort, sources map[uint32][]netip.Prefix) service.Entry {
	e := service.Entry{
		Frontend: serviceFrontend(k), Kind: kind,
		Internal: backendsOf(v.Internal, sets), External: backendsOf(v.External, sets),
		DSR: v.Flags&uint16(bpf.ServiceFlagSERVICE_DSR) != 0,
	}
	if v.Flags&uint16(bpf.ServiceFlagSERVICE_AFFINITY) != 0 {
		e.Affinity = time.Duration(v.Affinity) * time.Second
	}
	if v.Flags&uint16(bpf.ServiceFlagSERVICE_SOURCES) != 0 {
		e.Sources = sources[v.Id]
	}
	return e
}

func backendsOf(side bpf.BackendSet, sets map[uint32][]netip.AddrPort) service.Backends {
	b := service.Backends{Maglev: side.MaglevSize > 0}
	for without, value := range withoutBackend {
		if uint8(value) == side.NoBackend {
			b.Without = without
		}
	}
	if side.Count > 0 {
		b.Addresses = sets[side.Id]
	}
	return b
}

func comparePorts(a, b service.PortName) int {
	return cmp.Or(a.Service.Compare(b.Service), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Number, b.Number), cmp.Compare(a.Protocol, b.Protocol))
}

func compareFrontends(a, b service.Frontend) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }
