package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Translation is what one Service is on one node.
type Translation struct {
	// Ports are in the order of the Service; those without any frontend are left out.
	Ports []Port
	// Health is what a load balancer that asks at the Service's healthCheckNodePort is told; nil if it has none.
	Health *Health
	// Problems are sentences that name the Service. Those in Local are of this node only.
	Problems, Local []string
}

// Health is what a node says of a Service with externalTrafficPolicy Local: load balancers send to nodes that have endpoints.
type Health struct {
	Service cluster.Key
	// Port is the Service's healthCheckNodePort.
	Port uint16
	// Endpoints counts the ready endpoints on this node.
	Endpoints int
}

// Translate gives what a Service and its EndpointSlices, in a fixed order, are on a node. Slices may be missing, as when they come later
// than the Service.
func Translate(s *cluster.Service, endpointSlices []*cluster.EndpointSlice, node *NodeConfig) Translation {
	var t translation
	return t.translate(s, endpointSlices, node)
}

// translation translates one Service after the other, with memory that it uses again.
type translation struct {
	service        *cluster.Service
	endpointSlices []*cluster.EndpointSlice
	node           *NodeConfig
	port           *cluster.ServicePort
	// families has the backends of the port, IPv4 first, once they were asked for.
	families [2]struct {
		sets
		known bool
	}
	scratch []candidate
	entries []Entry
	// taken are the frontends of the Service so far, and the ports that have them.
	taken map[Frontend]PortName
	name  PortName
	// problems are those that every node has, local are this node's.
	problems, local []string
	// guard knows what the cluster has; nil asks nobody. refused are resources that others have got.
	guard   *guard
	refused [resources]bool
	// externals are the Service's external addresses at which it may answer.
	externals []externalAddress
	// left is how many frontends the Service may still have, beyond how many it had to do without.
	left, beyond [resources]int
}

// externalAddress is one that a Service asks for outside the cluster.
type externalAddress struct {
	netip.Addr
	kind Kind
}

func (t *translation) translate(s *cluster.Service, endpointSlices []*cluster.EndpointSlice, node *NodeConfig) Translation {
	t.service, t.endpointSlices, t.node = s, endpointSlices, node
	if t.taken == nil {
		t.taken = map[Frontend]PortName{}
	}
	t.left, t.beyond = [resources]int{inside: node.Limits.serviceFrontends(), external: node.Limits.serviceExternal()}, [resources]int{}
	t.takeExternals()
	var ports []Port
	numbers := make(map[[2]uint16]PortName, len(s.Ports))
	for i := range s.Ports {
		t.port = &s.Ports[i]
		t.name = PortName{Service: s.Key(), Port: t.port.Name, Number: t.port.Number, Protocol: t.port.Protocol}
		if !t.fit(numbers) {
			continue
		}
		if entries := t.translatePort(); len(entries) > 0 {
			ports = append(slices.Grow(ports, len(s.Ports)-i), Port{Name: t.name, Entries: entries})
		}
		for _, f := range t.families {
			if len(f.cluster) == MaxBackends || len(f.local) == MaxBackends {
				t.complain("only the first %d endpoints get connections", MaxBackends)
			}
		}
	}
	t.sayBeyond()
	done := Translation{Ports: ports, Health: t.health(), Problems: t.problems, Local: t.local}
	t.service, t.endpointSlices, t.node, t.port, t.problems, t.local = nil, nil, nil, nil, nil, nil
	t.externals = t.externals[:0]
	clear(t.scratch[:cap(t.scratch)])
	clear(t.taken)
	return done
}

// problemsTold bounds the sentences about one Service: who made it finds the rest when these are mended.
const problemsTold = 10

// complain notes what is wrong with the port.
func (t *translation) complain(format string, args ...any) {
	if len(t.problems) >= problemsTold {
		return
	}
	t.problems = append(t.problems, fmt.Sprintf("Service %s: port %s: ", t.service.Key(), t.name.label())+fmt.Sprintf(format, args...))
}

// label names a port to people.
func (n PortName) label() string {
	if n.Port == "" {
		return fmt.Sprintf("%d/%s", n.Number, n.Protocol)
	}
	return fmt.Sprintf("%s (%d/%s)", n.Port, n.Number, n.Protocol)
}

// fit tells whether a port can be had beside those before it. An API server lets none pass that cannot; a manifest can have all.
func (t *translation) fit(before map[[2]uint16]PortName) bool {
	if t.name.Number == 0 {
		t.complain("0 is not a port")
		return false
	}
	at := [2]uint16{t.name.Number, uint16(t.name.Protocol)}
	if other, taken := before[at]; taken {
		t.complain("has the same number as port %s", other.label())
		return false
	}
	before[at] = t.name
	return true
}

// translatePort gives the entries of a port, each frontend once. An address that the Service has twice is what comes first here: a load
// balancer's address has the sources that may use it, though it may be an external IP too.
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
			t.complain("%s is that of port %s", claim{kind: kind}.wording(entry.Frontend), other.label())
		}
		return
	}
	if !t.mayTake(entry.Frontend, kind) {
		return
	}
	t.taken[entry.Frontend] = t.name
	backends := t.backends(addr.Is4())
	if kind == KindClusterIP {
		entry.Inside = side(backends, t.service.InternalLocal)
		entry.Outside = Backends{Without: Pass}
	} else {
		// What pods and the node itself send to an outer address is taken for what has gone out and come back: no
		// policy keeps it here.
		entry.Inside = side(backends, false)
		world := side(backends, t.service.ExternalLocal)
		world.Maglev = len(world.Addresses) > 0
		entry.Outside = outside(entry.Frontend, world)
		// Only by a node's own address can another node tell that a packet has been forwarded to it, and not forward it again.
		// With affinity, it is for the forwarding node to remember where a client goes; with the policy Local no other node is asked.
		entry.DSR = t.node.DSR && kind == KindNodePort && entry.Affinity == 0 && !t.service.ExternalLocal && !addr.IsLoopback()
	}
	if kind == KindLoadBalancer {
		entry.Sources = sources(t.service.LoadBalancerSources, addr.Is4())
	}
	t.entries = append(t.entries, entry)
}

// backends gives the sets of a family.
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

// side gives the backends that a traffic policy leaves. A Service without any endpoint refuses, one that only has none here drops: others
// may be asked.
func side(backends sets, local bool) Backends {
	switch {
	case !local:
		return Backends{Addresses: backends.cluster}
	case len(backends.local) == 0 && len(backends.cluster) > 0:
		return Backends{Without: Drop}
	}
	return Backends{Addresses: backends.local}
}

// sources are the blocks of a family who may use a load balancer's address, none for everybody. As with kube-proxy, blocks of
// the other family alone do not restrict this one, and one that is everything restricts nothing.
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

// health counts pods on this node, whatever the number of their ports. A pod of both families is one.
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
