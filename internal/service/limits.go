package service

import (
	"fmt"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Limits are the sizes of the tables that Services share. Who may create Services in one namespace must not fill them for all others, so a
// Service and a namespace get a part of them. Zero bounds nothing.
type Limits struct {
	// Frontends and Backends are what the tables have room for (--services-max, --backends-max).
	Frontends, Backends int
}

// Parts of the tables. External frontends are externalIPs and load balancers' addresses: what users write, or controllers for them, while
// the API server gives ClusterIPs and NodePorts, each once.
const (
	externalPart        = 4  // of all frontends, all external ones together
	serviceFrontendPart = 8  // of all frontends, one Service without its external ones
	serviceExternalPart = 64 // of all frontends, the external ones of one Service
	serviceBackendPart  = 2  // of all backends, one Service
	leastPart           = 16 // small tables, as tests have them, are not cut into nothing
)

// unbounded is more than anybody asks for.
const unbounded = 1 << 40

func part(of, by int) int {
	if of == 0 {
		return unbounded
	}
	return max(of/by, leastPart)
}

func (l Limits) external() int         { return part(l.Frontends, externalPart) }
func (l Limits) serviceFrontends() int { return part(l.Frontends, serviceFrontendPart) }
func (l Limits) serviceExternal() int  { return part(l.Frontends, serviceExternalPart) }
func (l Limits) serviceBackends() int  { return part(l.Backends, serviceBackendPart) }

// resource is something that owners share.
type resource int

const (
	// inside are frontends but for external ones.
	inside resource = iota
	// external are frontends at externalIPs and load balancers' addresses.
	external
	// endpoints are the backends that EndpointSlices name: each endpoint with each port.
	endpoints
	resources
)

// capacity is how much of a resource there is, for all owners together.
func (l Limits) capacity(of resource, externalUsed int) int {
	switch of {
	case external:
		return l.external()
	case inside:
		if l.Frontends > 0 {
			return l.Frontends - externalUsed
		}
	case endpoints:
		if l.Backends > 0 {
			return l.Backends
		}
	}
	return unbounded
}

// full says what of an owner is left out for want of a resource, and what to do about it.
func (l Limits) full(of resource, namespace string, wanted int) string {
	flag, table, size := "--services-max", "services", l.Frontends
	what := "its addresses and ports do not answer"
	switch of {
	case external:
		what, size = "its externalIPs and load balancer's addresses do not answer", l.external()
	case endpoints:
		what, flag, table, size = "its endpoints get no connections", "--backends-max", "backends", l.Backends
	}
	return fmt.Sprintf("%s: map %s is full with %d entries: raise %s, or make namespace %q smaller, which asks for %d and gives way first", what, table, size, flag, namespace, wanted)
}

// load is how much an owner asks for of each resource, after what one Service may have.
type load [resources]int

// loadOf measures a Service without making anything of it.
func loadOf(s *cluster.Service, slices []*cluster.EndpointSlice, node *NodeConfig) (l load) {
	if s != nil {
		nodePorts := 0
		for _, p := range s.Ports {
			if p.NodePort != 0 {
				nodePorts++
			}
		}
		l[inside] = min(len(s.Ports)*len(s.ClusterIPs)+nodePorts*len(node.NodePortAddresses), node.Limits.serviceFrontends())
		l[external] = min(len(s.Ports)*(len(s.LoadBalancerIPs)+node.allowedExternalIPs(s)), node.Limits.serviceExternal())
	}
	for _, slice := range slices {
		l[endpoints] += pairs(slice)
	}
	l[endpoints] = min(l[endpoints], node.Limits.serviceBackends())
	return l
}

// pairs counts the backends that a slice names.
func pairs(slice *cluster.EndpointSlice) int { return len(slice.Ports) * len(slice.Endpoints) }

// bounded gives the slices, of those in their order, whose backends one Service may have.
func (l Limits) bounded(all []*cluster.EndpointSlice) (within []*cluster.EndpointSlice, beyond int) {
	left := l.serviceBackends()
	for i, slice := range all {
		if left -= pairs(slice); left < 0 {
			return all[:i:i], len(all) - i
		}
	}
	return all, 0
}
