package datapath

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

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
	// Connections got a backend; Refused did not, for want of one or because of their source.
	Connections, Refused uint64
}

// All reads the tables back, sorted by the name of the Service. Frontends that no Service has claimed are not in it.
func (s *Services) All() ([]ServicePort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.recover(); err != nil {
		return nil, err
	}
	sets, err := s.readSets()
	if err != nil {
		return nil, err
	}
	byName := make(map[service.PortName]*ServicePort, len(s.ports))
	for name, p := range s.ports {
		count, err := s.count(p.id)
		if err != nil {
			return nil, err
		}
		byName[name] = &ServicePort{Port: service.Port{Name: name}, ID: p.id, Count: count}
	}
	err = readAll(s.services, func(k *bpfFrontend, v *bpfService) {
		h := s.frontends[*k]
		if h.port == nil {
			return
		}
		p := byName[h.port.name]
		p.Entries = append(p.Entries, s.entry(*k, *v, h.kind, sets))
	})
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpfMapServices, err)
	}
	all := make([]ServicePort, 0, len(byName))
	for _, p := range byName {
		slices.SortFunc(p.Entries, func(a, b service.Entry) int { return compareFrontends(a.Frontend, b.Frontend) })
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b ServicePort) int { return comparePorts(a.Name, b.Name) })
	return all, nil
}

// Counts gives the counts of every port.
func (s *Services) Counts() (map[service.PortName]ServiceCount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[service.PortName]ServiceCount, len(s.ports))
	for name, p := range s.ports {
		count, err := s.count(p.id)
		if err != nil {
			return nil, err
		}
		all[name] = count
	}
	return all, nil
}

// count sums over the CPUs; a Service without connections has no entry.
func (s *Services) count(id uint32) (ServiceCount, error) {
	var perCPU []bpfServiceCount
	if err := lookup(s.counts, id, &perCPU); err != nil {
		return ServiceCount{}, fmt.Errorf("read map %s: %w", bpfMapServiceCounts, err)
	}
	var sum ServiceCount
	for _, c := range perCPU {
		sum.Connections += c.Connections
		sum.Refused += c.Refused
	}
	return sum, nil
}

// readSets gives the backends of every set.
func (s *Services) readSets() (map[uint32][]netip.AddrPort, error) {
	sets := map[uint32][]netip.AddrPort{}
	err := readAll(s.sets.m, func(k *bpfBackendKey, v *bpfBackend) {
		set := sets[k.Set]
		if missing := int(k.Index) + 1 - len(set); missing > 0 {
			set = append(set, make([]netip.AddrPort, missing)...)
			sets[k.Set] = set
		}
		set[k.Index] = netip.AddrPortFrom(v.Address.addr(), networkOrder(v.Port))
	})
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpfMapBackends, err)
	}
	return sets, nil
}

// entry is the inverse of valueOf.
func (s *Services) entry(k bpfFrontend, v bpfService, kind service.Kind, sets map[uint32][]netip.AddrPort) service.Entry {
	e := service.Entry{
		Frontend: k.frontend(), Kind: kind,
		Inside: backendsOf(v.Inside, sets), Outside: backendsOf(v.Outside, sets),
		DSR: v.Flags&uint16(bpfServiceFlagSERVICE_DSR) != 0,
	}
	if v.Flags&uint16(bpfServiceFlagSERVICE_AFFINITY) != 0 {
		e.Affinity = time.Duration(v.Affinity) * time.Second
	}
	if v.Flags&uint16(bpfServiceFlagSERVICE_SOURCES) != 0 {
		e.Sources = s.sources.of(v.Id)
	}
	return e
}

func backendsOf(side bpfBackendSet, sets map[uint32][]netip.AddrPort) service.Backends {
	b := service.Backends{Maglev: side.MaglevSize > 0}
	for without, value := range withoutBackend {
		if uint8(value) == side.Without {
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
