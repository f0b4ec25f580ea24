package agent

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/beeline-cni/beeline/internal/agent/api"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
)

// askedService is a Service that a destination means.
type askedService struct {
	*cluster.Service
	// port is that of the Service which is asked about; nil if it has none like that.
	port *cluster.ServicePort
	// at is where it is asked for; without an address for one that has none.
	at netip.AddrPort
	// byName says that it was named: then any of its addresses may be used.
	byName bool
}

// serviceOf finds the Service that a destination means: by a name that no pod has, by one of its addresses, or by a node's address and
// the port that it has on all nodes. It gives nil for other destinations.
func (x explainer) serviceOf(to, port string, protocol cluster.Protocol) *askedService {
	address, err := netip.ParseAddr(to)
	if err != nil {
		return x.serviceNamed(to, port, protocol)
	}
	address = address.WithZone("").Unmap()
	for _, s := range x.snapshot.Services {
		if !slices.Contains(slices.Concat(s.ClusterIPs, s.ExternalIPs, s.LoadBalancerIPs), address) {
			continue
		}
		asked := &askedService{Service: s, port: portOf(s, port, protocol)}
		if asked.port != nil {
			asked.at = netip.AddrPortFrom(address, asked.port.Number)
			return asked
		}
		if slices.Contains(s.ClusterIPs, address) {
			return asked
		}
		// other addresses may be somebody's who has ports of his own
	}
	if !slices.ContainsFunc(x.snapshot.Nodes, func(n cluster.Node) bool { return slices.Contains(n.Addresses, address) }) {
		return nil
	}
	for _, s := range x.snapshot.Services {
		for i, p := range s.Ports {
			if p.NodePort != 0 && p.Protocol == protocol && strconv.Itoa(int(p.NodePort)) == port {
				return &askedService{Service: s, port: &s.Ports[i], at: netip.AddrPortFrom(address, p.NodePort)}
			}
		}
	}
	return nil
}

func (x explainer) serviceNamed(name, port string, protocol cluster.Protocol) *askedService {
	key, ok := keyNamed(name)
	if !ok || podOf(x.snapshot, key) != nil {
		return nil
	}
	s := find(x.snapshot.Services, key)
	if s == nil {
		return nil
	}
	asked := &askedService{Service: s, port: portOf(s, port, protocol), byName: true}
	if asked.port != nil && len(s.ClusterIPs) > 0 {
		asked.at = netip.AddrPortFrom(s.ClusterIPs[0], asked.port.Number)
	}
	return asked
}

// portOf gives the port of a Service that has that name or number, or nil.
func portOf(s *cluster.Service, port string, protocol cluster.Protocol) *cluster.ServicePort {
	at := slices.IndexFunc(s.Ports, func(p cluster.ServicePort) bool {
		return p.Protocol == protocol && (p.Name == port || strconv.Itoa(int(p.Number)) == port)
	})
	if at < 0 {
		return nil
	}
	return &s.Ports[at]
}

// backends are those of a port of a Service, as pods where they are some. An address has those of its own family.
func (x explainer) backends(s *askedService, q api.PolicyQuestion, protocol cluster.Protocol) (all []destination, err error) {
	if s.port == nil {
		return nil, api.Errorf(api.CodeNotFound, "Service %s has no port %s of protocol %s", s.Key(), q.Port, q.Protocol)
	}
	for _, slice := range x.snapshot.EndpointSlices {
		if slice.Namespace != s.Namespace || slice.Service != s.Name {
			continue
		}
		for _, p := range slice.Ports {
			if p.Name != s.port.Name || p.Protocol != protocol {
				continue
			}
			for _, e := range slice.Endpoints {
				if !s.byName && e.Address.Is4() != s.at.Addr().Is4() {
					continue
				}
				to := destination{end: evaluate.Endpoint{Address: e.Address}, port: p.Number, service: s.Key().String(), asked: s.at}
				if !slices.Contains(all, to) {
					all = append(all, to)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil, api.Errorf(api.CodeNotFound, "Service %s has no backends", s.Key())
	}
	return all, nil
}
