package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Translation is one Service on one node.
type Translation struct {
	// Ports are in the order of the Service, without ports that have no frontend.
	Ports []Port
	// Health is the reply to load balancers at the Service's healthCheckNodePort; nil without one.
	Health *Health
	// Problems are sentences that name the Service. Those in Local are this node's only.
	Problems, Local []string
}

// Health is the state of a Service with externalTrafficPolicy Local: load balancers send to nodes with endpoints.
type Health struct {
	Service cluster.Key
	// Port is the Service's healthCheckNodePort.
	Port uint16
	// Endpoints counts the ready endpoints on this node.
	Endpoints int
}

// Translate translates a Service and its EndpointSlices, in a fixed order, for a node. Slices may be missing, for example if
// they come later than the Service.
func Translate(s *cluster.Service, endpointSlices []*cluster.EndpointSlice, node *NodeConfig) Translation {
	var t translation
	return t.translate(s, endpointSlices, node)
}

// translation translates one Service after the other and reuses its memory.
type translation struct {
	service        *cluster.Service
	endpointSlices []*cluster.EndpointSlice
	node           *NodeConfig
	port           *cluster.ServicePort
	// families caches the backends of the port, IPv4 first.
	families [2]struct {
		sets
		known bool
	}
	scratch []candidate
	entries []Entry
	// taken are the frontends of the Service so far, and their ports.
	taken map[Frontend]PortName
	name  PortName
	// problems are those of every node, local are this node's.
	problems, local []string
	// reserved are the addresses of the cluster; nil skips that check. rejected are resources that others have got.
	reserved *reserved
	rejected [resources]bool
	// externals are the external addresses that the Service may have.
	externals []externalAddress
	// left is how many frontends the Service may still have, excess how many it has too many.
	left, excess [resources]int
}

// externalAddress is an address that a Service requests outside the cluster.
type externalAddress struct {
	netip.Addr
	kind Kind
}

func (t *translation) translate(s *cluster.Service, endpointSlices []*cluster.EndpointSlice, node *NodeConfig) Translation {
	t.service, t.endpointSlices, t.node = s, endpointSlices, node
	if t.taken == nil {
		t.taken = map[Frontend]PortName{}
	}
	t.left, t.excess = [resources]int{inside: node.Limits.serviceFrontends(), external: node.Limits.serviceExternal()}, [resources]int{}
	t.collectExternals()
	var ports []Port
	numbers := make(map[[2]uint16]PortName, len(s.Ports))
	for i := range s.Ports {
		t.port = &s.Ports[i]
		t.name = PortName{Service: s.Key(), Port: t.port.Name, Number: t.port.Number, Protocol: t.port.Protocol}
		if !t.validate(numbers) {
			continue
		}
		if entries := t.translatePort(); len(entries) > 0 {
			ports = append(slices.Grow(ports, len(s.Ports)-i), Port{Name: t.name, Entries: entries})
		}
		for _, f := range t.families {
			if len(f.cluster) == MaxBackends || len(f.local) == MaxBackends {
				t.addProblem("only the first %d endpoints get connections", MaxBackends)
			}
		}
	}
	t.reportExcess()
	done := Translation{Ports: ports, Health: t.health(), Problems: t.problems, Local: t.local}
	t.service, t.endpointSlices, t.node, t.port, t.problems, t.local = nil, nil, nil, nil, nil, nil
	t.externals = t.externals[:0]
	clear(t.scratch[:cap(t.scratch)])
	clear(t.taken)
	return done
}

// maxProblems limits the sentences about one Service.
const maxProblems = 10

// addProblem records a problem of the port.
func (t *translation) addProblem(format string, args ...any) {
	if len(t.problems) >= maxProblems {
		return
	}
	t.problems = append(t.problems, fmt.Sprintf("Service %s: port %s: ", t.service.Key(), t.name.label())+fmt.Sprintf(format, args...))
}

// label names a port.
func (n PortName) label() string {
	if n.Port == "" {
		return fmt.Sprintf("%d/%s", n.Number, n.Protocol)
	}
	return fmt.Sprintf("%s (%d/%s)", n.Port, n.Number, n.Protocol)
}

// validate reports whether a port is valid beside those before it. An API server guarantees that; manifests may violate it.
func (t *translation) validate(before map[[2]uint16]PortName) bool {
	if t.name.Number == 0 {
		t.addProblem("0 is not a port")
		return false
	}
	at := [2]uint16{t.name.Number, uint16(t.name.Protocol)}
	if other, taken := before[at]; taken {
		t.addProblem("has the same number as port %s", other.label())
		return false
	}
	before[at] = t.name
	return true
}

// translatePort returns the entries of a port, each frontend once. The first kind wins: a load balancer's address keeps its
// source ranges although it may also be an external IP.
func (t *translation) translatePort() []Entry {
	t.families = [2]struct {
		sets
		known bool
	}{}
	t.entries = t.entries[:0]
	s, number := t.service, t.port.Number
	for _, addr := range s.ClusterIPs {
		t.add(addr, number, KindClusterIP)
	}
	byUsers := slices.IndexFunc(t.externals, func(e externalAddress) bool { return e.kind == KindExternalIP })
	if byUsers < 0 {
		byUsers = len(t.externals)
	}
	t.addExternals(t.externals[:byUsers], number)
	if t.port.NodePort != 0 {
		for _, addr := range t.node.NodePortAddresses {
			t.add(addr, t.port.NodePort, KindNodePort)
		}
	}
	t.addExternals(t.externals[byUsers:], number)
	entries := slices.Clone(t.entries)
	clear(t.entries)
	return entries
}

func (t *translation) add(addr netip.Addr, number uint16, kind Kind) {
	entry := Entry{Frontend: Frontend{addr, number, t.port.Protocol}, Kind: kind, Affinity: t.service.Affinity}
	if other, taken := t.taken[entry.Frontend]; taken {
		if other != t.name {
			t.addProblem("%s is that of port %s", request{kind: kind}.wording(entry.Frontend), other.label())
		}
		return
	}
	if !t.reserve(entry.Frontend, kind) {
		return
	}
	t.taken[entry.Frontend] = t.name
	backends := t.backends(addr.Is4())
	if kind == KindClusterIP {
		entry.Internal = side(backends, t.service.InternalLocal)
		entry.External = Backends{Without: Pass}
	} else {
		// A packet of a pod or the node itself to an external address is treated as if it had gone out and come back: no
		// traffic policy applies.
		entry.Internal = side(backends, false)
		external := side(backends, t.service.ExternalLocal)
		external.Maglev = len(external.Addresses) > 0
		entry.External = externalBackends(entry.Frontend, external)
		// Only a node's own address tells another node that a packet was forwarded to it, so that it does not forward it again.
		// With affinity the forwarding node must remember the client's backend; with policy Local no other node is involved.
		entry.DSR = t.node.DSR && kind == KindNodePort && entry.Affinity == 0 && !t.service.ExternalLocal && !addr.IsLoopback()
	}
	if kind == KindLoadBalancer {
		entry.Sources = sources(t.service.LoadBalancerSources, addr.Is4())
	}
	t.entries = append(t.entries, entry)
}

// backends returns the sets of a family.
func (t *translation) backends(ipv4 bool) sets {
	f := &t.families[1]
	if ipv4 {
		f = &t.families[0]
	}
	if !f.known {
		t.scratch = candidates(t.scratch[:0], t.port, ipv4, t.endpointSlices)
		f.sets, f.known = choose(t.scratch, t.node, t.service.InternalLocal || t.service.ExternalLocal), true
	}
	return f.sets
}

// side returns the backends that a traffic policy leaves. A Service without any endpoint rejects, one without endpoints on this
// node drops: other nodes may have some.
func side(backends sets, local bool) Backends {
	switch {
	case !local:
		return Backends{Addresses: backends.cluster}
	case len(backends.local) == 0 && len(backends.cluster) > 0:
		return Backends{Without: Drop}
	}
	return Backends{Addresses: backends.local}
}

// sources returns the loadBalancerSourceRanges of a family, none for all. As with kube-proxy, ranges of the other family alone
// do not restrict this one, and a range of everything restricts nothing.
func sources(all []netip.Prefix, ipv4 bool) []netip.Prefix {
	var own []netip.Prefix
	for _, block := range all {
		if block.Addr().Is4() != ipv4 {
			continue
		}
		if block.Bits() == 0 {
			return nil
		}
		if !slices.Contains(own, block) {
			own = append(own, block)
		}
	}
	return own
}

// health counts pods on this node, independent of their number of ports. A dual-stack pod counts once.
func (t *translation) health() *Health {
	s := t.service
	if s.HealthCheckNodePort == 0 || !s.ExternalLocal {
		return nil
	}
	var here [2][]netip.Addr
	for _, slice := range t.endpointSlices {
		for _, e := range slice.Endpoints {
			family := e.Address.BitLen() / 128
			if e.Ready && e.Node == t.node.Name && !slices.Contains(here[family], e.Address) {
				here[family] = append(here[family], e.Address)
			}
		}
	}
	return &Health{Service: s.Key(), Port: s.HealthCheckNodePort, Endpoints: max(len(here[0]), len(here[1]))}
}
