package policy

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/service"
)

// requestedService is a Service that a destination refers to.
type requestedService struct {
	*cluster.Service
	// port is the port of the Service; nil if the requested one does not exist.
	port *cluster.ServicePort
	// at are the requested frontends: one, or all cluster IPs if the Service was named.
	at   []netip.AddrPort
	kind service.Kind
	// node is the one whose NodePort it is.
	node string
}

// serviceOf finds the Service that a destination refers to: by a name that no pod has, by one of its addresses, or by
// a node's address and a NodePort. It gives nil for other destinations.
func (x explainer) serviceOf(to, port string, protocol cluster.Protocol) *requestedService {
	address, err := netip.ParseAddr(to)
	if err != nil {
		return x.serviceNamed(to, port, protocol)
	}
	address = address.WithZone("").Unmap()
	for _, s := range x.snapshot.Services {
		kind, is := x.addressOf(s, address)
		if !is {
			continue
		}
		requested := &requestedService{Service: s, port: portOf(s, port, protocol), kind: kind}
		if requested.port != nil {
			requested.at = []netip.AddrPort{netip.AddrPortFrom(address, requested.port.Number)}
			return requested
		}
		if kind == service.KindClusterIP {
			return requested
		}
		// other addresses may belong to a host with its own ports
	}
	node, ok := x.nodePortsAt(address)
	if !ok {
		return nil
	}
	for _, s := range x.snapshot.Services {
		for i, p := range s.Ports {
			if p.NodePort != 0 && p.Protocol == protocol && strconv.Itoa(int(p.NodePort)) == port {
				at := netip.AddrPortFrom(address, p.NodePort)
				return &requestedService{Service: s, port: &s.Ports[i], at: []netip.AddrPort{at}, kind: service.KindNodePort, node: node}
			}
		}
	}
	return nil
}

// addressOf gives the kind of a Service's address, as package service does.
func (x explainer) addressOf(s *cluster.Service, address netip.Addr) (kind service.Kind, is bool) {
	switch {
	case slices.Contains(s.ClusterIPs, address):
		return service.KindClusterIP, true
	case slices.Contains(s.LoadBalancerIPs, address):
		return service.KindLoadBalancer, true
	case slices.Contains(s.ExternalIPs, address) && x.allowsExternalIP(address):
		return service.KindExternalIP, true
	}
	return "", false
}

// allowsExternalIP reports whether Services may have an address in their externalIPs. kube-proxy has its own flag for
// that.
func (x explainer) allowsExternalIP(address netip.Addr) bool {
	config := service.NodeConfig{ExternalIPs: x.options.ExternalIPs}
	return x.options.Services != lb.ModeEBPF || config.AllowsExternalIP(address)
}

// nodePortsAt names the node with an address that serves NodePorts. Other nodes are assumed to have the flags of this
// one; kube-proxy serves all addresses by default.
func (x explainer) nodePortsAt(address netip.Addr) (node string, ok bool) {
	requested := slices.ContainsFunc(x.options.NodePorts, func(p netip.Prefix) bool { return p.Contains(address) })
	for _, n := range x.snapshot.Nodes {
		reported, _ := x.reported.Node(n.Name)
		ofNode := slices.Contains(reported.Addresses, address) || slices.Contains(reported.ExternalIPs, address)
		held := ofNode || slices.Contains(n.Addresses, address)
		switch {
		case x.options.Services != lb.ModeEBPF:
			ok = held
		case len(x.options.NodePorts) > 0:
			ok = held && requested
		default:
			ok = ofNode
		}
		if ok {
			return n.Name, true
		}
	}
	return "", false
}

func (x explainer) serviceNamed(name, port string, protocol cluster.Protocol) *requestedService {
	key, ok := keyNamed(name)
	if !ok || podOf(x.snapshot, key) != nil {
		return nil
	}
	s, _ := cluster.ListOf(x.snapshot.Services...).Find(key)
	if s == nil {
		return nil
	}
	requested := &requestedService{Service: s, port: portOf(s, port, protocol), kind: service.KindClusterIP}
	if requested.port != nil {
		for _, a := range s.ClusterIPs {
			requested.at = append(requested.at, netip.AddrPortFrom(a, requested.port.Number))
		}
	}
	return requested
}

// portOf gives the port of a Service with that name or number, or nil.
func portOf(s *cluster.Service, port string, protocol cluster.Protocol) *cluster.ServicePort {
	at := slices.IndexFunc(s.Ports, func(p cluster.ServicePort) bool {
		return p.Protocol == protocol && (p.Name == port || strconv.Itoa(int(p.Number)) == port)
	})
	if at < 0 {
		return nil
	}
	return &s.Ports[at]
}

// backends are those of a port of a Service, as pods where possible. An address has those of its own family.
func (x explainer) backends(from evaluate.Endpoint, s *requestedService, q agentapi.PolicyQuestion) (all []destination, err error) {
	if s.port == nil {
		return nil, agentapi.Errorf(agentapi.CodeNotFound, "Service %s has no port %s of protocol %s", s.Key(), q.Port, q.Protocol)
	}
	for _, at := range s.at {
		all = append(all, x.backendsAt(from, s, at)...)
	}
	if len(all) == 0 {
		return nil, agentapi.Errorf(agentapi.CodeNotFound, "Service %s has no backends", s.Key())
	}
	if !slices.ContainsFunc(all, func(d destination) bool { return !d.unused }) {
		return nil, agentapi.Errorf(agentapi.CodeNotFound, "Service %s has no backend that connections from %s to %s go to: %s", s.Key(), q.From, q.To, x.whyUnused(s))
	}
	return all, nil
}

// whyUnused says why no backend of a Service gets a connection.
func (x explainer) whyUnused(s *requestedService) string {
	for _, slice := range x.slicesOf(s.Service) {
		if slices.ContainsFunc(slice.Endpoints, func(e cluster.Endpoint) bool { return e.Ready }) {
			return "none is ready on the node that chooses, and its traffic policy is Local"
		}
	}
	return "none is ready"
}

func (x explainer) slicesOf(s *cluster.Service) (all []*cluster.EndpointSlice) {
	for slice := range x.snapshot.EndpointSlices.All() {
		if slice.Namespace == s.Namespace && slice.Service == s.Name {
			all = append(all, slice)
		}
	}
	return all
}
