package lb

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/lb"
	"github.com/beeline-cni/beeline/internal/service"
)

// List lists the ports of Services in the kernel, with their endpoints from the cluster.
func (s *Services) List(which agentapi.ServiceFilter) ([]agentapi.ServicePort, error) {
	ports, err := s.table.All()
	if err != nil {
		return nil, err
	}
	ports = slices.DeleteFunc(ports, func(p lb.ServicePort) bool { return !matches(which, p.Name.Service) })
	s.inputs.mu.Lock()
	snapshot, node := s.inputs.snapshot, s.inputs.node
	s.inputs.mu.Unlock()
	if snapshot == nil {
		snapshot = &cluster.Snapshot{}
	}
	d := describer{maglevSize: int(s.config.MaglevTableSize), zones: map[string]string{}, slices: map[cluster.Key][]*cluster.EndpointSlice{}, snapshot: snapshot}
	if node != nil {
		d.self = node.Name
	}
	d.index(which)
	all := make([]agentapi.ServicePort, 0, len(ports))
	for _, p := range ports {
		all = append(all, d.port(p))
	}
	return all, nil
}

func matches(which agentapi.ServiceFilter, key cluster.Key) bool {
	return (which.Namespace == "" || which.Namespace == key.Namespace) && (which.Name == "" || which.Name == key.Name)
}

// describer joins the state of Services in the kernel and in the cluster.
type describer struct {
	self       string
	maglevSize int // 0: by the number of backends
	snapshot   *cluster.Snapshot
	zones      map[string]string // by node
	slices     map[cluster.Key][]*cluster.EndpointSlice
}

func (d *describer) index(which agentapi.ServiceFilter) {
	for _, n := range d.snapshot.Nodes {
		d.zones[n.Name] = n.Zone
	}
	for s := range d.snapshot.EndpointSlices.All() {
		if key := (cluster.Key{Namespace: s.Namespace, Name: s.Service}); matches(which, key) {
			d.slices[key] = append(d.slices[key], s)
		}
	}
}

func (d *describer) service(key cluster.Key) *cluster.Service {
	at, found := slices.BinarySearchFunc(d.snapshot.Services, key, func(s *cluster.Service, key cluster.Key) int { return s.Key().Compare(key) })
	if !found {
		return &cluster.Service{}
	}
	return d.snapshot.Services[at]
}

func (d *describer) port(p lb.ServicePort) agentapi.ServicePort {
	out := agentapi.ServicePort{
		Namespace: p.Name.Service.Namespace, Name: p.Name.Service.Name, Port: p.Name.Port, Number: p.Name.Number, Protocol: p.Name.Protocol.String(),
		Connections: p.Count.Connections, Rejected: p.Count.Rejected, Backends: []agentapi.Backend{},
	}
	isHostPort := false
	for _, e := range p.Entries {
		isHostPort = isHostPort || e.Kind == service.KindHostPort
		out.AffinitySeconds = max(out.AffinitySeconds, int64(e.Affinity/time.Second))
		out.Frontends = append(out.Frontends, agentapi.Frontend{
			Kind: string(e.Kind), Address: e.Frontend.Address, Port: e.Frontend.Port, Sources: e.Sources, DSR: e.DSR,
			Internal: d.side(e.Internal), External: d.side(e.External),
		})
	}
	if isHostPort {
		out.Port = "" // it has no name; the datapath's distinguishes pods from Services
		for _, e := range p.Entries {
			for _, at := range e.Internal.Addresses {
				b := agentapi.Backend{Address: at, Ready: true, Serving: true, Local: true, Node: d.self, Zone: d.zones[d.self]}
				if !slices.Contains(out.Backends, b) {
					out.Backends = append(out.Backends, b)
				}
			}
		}
		return out
	}
	s := d.service(p.Name.Service)
	out.InternalLocal, out.ExternalLocal = s.InternalLocal, s.ExternalLocal
	out.Backends = d.backends(p.Name)
	return out
}

// backends are the endpoints of a port, sorted by address.
func (d *describer) backends(of service.PortName) []agentapi.Backend {
	all := []agentapi.Backend{}
	for _, s := range d.slices[of.Service] {
		for _, port := range s.Ports {
			if port.Name != of.Port || port.Protocol != of.Protocol {
				continue
			}
			for _, e := range s.Endpoints {
				all = append(all, agentapi.Backend{
					Address: netip.AddrPortFrom(e.Address, port.Number), Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
					Local: e.Node != "" && e.Node == d.self, Node: e.Node, Zone: d.zones[e.Node],
				})
			}
		}
	}
	slices.SortFunc(all, func(x, y agentapi.Backend) int {
		return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(x.Node, y.Node))
	})
	return all
}

func (d *describer) side(b service.Backends) agentapi.ServiceSide {
	if len(b.Addresses) == 0 {
		return agentapi.ServiceSide{Without: withoutWords[b.Without]}
	}
	side := agentapi.ServiceSide{Backends: b.Addresses, Algorithm: agentapi.AlgorithmRandom}
	if b.Maglev {
		side.Algorithm, side.TableSize = agentapi.AlgorithmMaglev, d.maglevSize
		if d.maglevSize == 0 {
			side.TableSize = service.MaglevSize(len(b.Addresses))
		}
	}
	return side
}

var withoutWords = map[service.WithoutBackend]string{service.Reject: agentapi.WithoutReject, service.Drop: agentapi.WithoutDrop, service.Pass: agentapi.WithoutPass}
