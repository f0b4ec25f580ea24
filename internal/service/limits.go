package service

import (
	"fmt"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Limits are the capacities of the tables that Services share. They are divided among namespaces and Services, so that users of
// one namespace cannot fill them for all others. Zero is no limit.
type Limits struct {
	// Frontends and Backends are the capacities of the tables, in entries (--services-max, --backends-max).
	Frontends, Backends int
}

// Shares of the tables. External frontends are externalIPs and load balancers' addresses: users or controllers write them,
// while the API server allocates ClusterIPs and NodePorts, each once.
const (
	externalPart        = 4  // of all frontends, all external ones together
	serviceFrontendPart = 8  // of all frontends, one Service without its external ones
	serviceExternalPart = 64 // of all frontends, the external ones of one Service
	serviceBackendPart  = 2  // of all backends, one Service
	leastPart           = 16 // lower bound for the small tables of tests
)

// unbounded exceeds every demand.
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

// resource is a table that owners share.
type resource int

const (
	// inside are all frontends except external ones.
	inside resource = iota
	// external are frontends at externalIPs and load balancers' addresses.
	external
	// endpoints are the backends in EndpointSlices: each endpoint with each port.
	endpoints
	resources
)

// capacity returns the size of a resource, for all owners together.
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

// full describes what an owner lacks because a resource is full, and what to do about it.
func (l Limits) full(of resource, namespace string, wanted int) string {
	flag, table, size := "--services-max", "services", l.Frontends
	what := "its addresses and ports do not answer"
	switch of {
	case external:
		what, size = "its externalIPs and load balancer's addresses do not answer", l.external()
	case endpoints:
		what, flag, table, size = "its endpoints get no connections", "--backends-max", "backends", l.Backends
	}
	return fmt.Sprintf("%s: map %s is full with %d entries: raise %s, or reduce namespace %q, whose demand of %d is the largest", what, table, size, flag, namespace, wanted)
}

// load is an owner's demand for each resource, after the limit of one Service.
type load [resources]int

// loadOf computes the demand of a Service without translating it.
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

// pairs counts the backends in a slice.
func pairs(slice *cluster.EndpointSlice) int { return len(slice.Ports) * len(slice.Endpoints) }

// bounded returns the slices, in order, whose backends are within the limit of one Service.
func (l Limits) bounded(all []*cluster.EndpointSlice) (within []*cluster.EndpointSlice, excess int) {
	left := l.serviceBackends()
	for i, slice := range all {
		if left -= pairs(slice); left < 0 {
			return all[:i:i], len(all) - i
		}
	}
	return all, 0
}
