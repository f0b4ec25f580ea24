package lb

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/service"
)

func frontendOf(f service.Frontend) bpf.Frontend {
	return bpf.Frontend{Address: bpf.AddressOf(f.Address), Port: bpf.NetworkOrder(f.Port), Protocol: uint8(f.Protocol)}
}

// serviceFrontend is the inverse of frontendOf.
func serviceFrontend(k bpf.Frontend) service.Frontend {
	return service.Frontend{Address: k.Address.Addr(), Port: bpf.NetworkOrder(k.Port), Protocol: cluster.Protocol(k.Protocol)}
}

// check refuses what the tables cannot hold.
func check(p service.Port) error {
	var sources []netip.Prefix
	for _, e := range p.Entries {
		if !e.Frontend.Address.IsValid() || e.Frontend.Port == 0 {
			return fmt.Errorf("%s is not an address and a port", describe(e.Frontend))
		}
		for _, side := range []service.Backends{e.Internal, e.External} {
			if len(side.Addresses) > service.MaxBackends {
				return fmt.Errorf("%d backends of %s are more than the %d that a set can have", len(side.Addresses), describe(e.Frontend), service.MaxBackends)
			}
		}
		if len(e.Sources) == 0 {
			continue
		}
		if sources != nil && !slices.Equal(sources, e.Sources) {
			return fmt.Errorf("frontends of one port have different source ranges: %v and %v", sources, e.Sources)
		}
		sources = e.Sources
	}
	return nil
}

// sourcesOf are the source ranges of a port, which are the same for each of its frontends that has any.
func sourcesOf(p service.Port) []netip.Prefix {
	for _, e := range p.Entries {
		if len(e.Sources) > 0 {
			return e.Sources
		}
	}
	return nil
}

// valueOf gives what a frontend does. It uses the sets and tables that the value refers to; release them if it is not written.
func (s *Services) valueOf(e service.Entry, id uint32, plan *plan) bpf.Service {
	v := bpf.Service{Id: id, Internal: s.sideOf(e.Internal, plan), External: s.sideOf(e.External, plan)}
	if e.Affinity > 0 {
		v.Flags |= uint16(bpf.ServiceFlagSERVICE_AFFINITY)
		v.Affinity = max(uint32(e.Affinity.Seconds()), 1)
	}
	if len(e.Sources) > 0 {
		v.Flags |= uint16(bpf.ServiceFlagSERVICE_SOURCES)
	}
	if e.DSR {
		v.Flags |= uint16(bpf.ServiceFlagSERVICE_DSR)
	}
	return v
}

var withoutBackend = map[service.WithoutBackend]bpf.NoBackend{
	service.Reject: bpf.NoBackendNO_BACKEND_REJECT,
	service.Drop:   bpf.NoBackendNO_BACKEND_DROP,
	service.Pass:   bpf.NoBackendNO_BACKEND_PASS,
}

func (s *Services) sideOf(b service.Backends, plan *plan) bpf.BackendSet {
	side := bpf.BackendSet{Count: uint16(len(b.Addresses)), NoBackend: uint8(withoutBackend[b.Without])}
	if len(b.Addresses) == 0 {
		return side
	}
	plan.content = pack(plan.content[:0], b.Addresses)
	set := s.sets.use(plan.content, len(b.Addresses))
	plan.needs(&plan.sets, set)
	side.Id = set.id
	if b.Maglev {
		size := s.maglevSize
		if size == 0 {
			size = service.MaglevSize(len(b.Addresses))
		}
		plan.content = packTable(plan.content[:0], size, b.Addresses)
		table := s.tables.use(plan.content, maglevBlocks(size, len(b.Addresses)))
		plan.needs(&plan.tables, table)
		side.Maglev, side.MaglevSize, side.MaglevWidth = table.id, uint32(size), uint8(maglevWidth(len(b.Addresses)))
	}
	return side
}
