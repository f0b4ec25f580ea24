package service

import (
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// candidate is an endpoint of one port of a Service, with its port number.
type candidate struct {
	at netip.AddrPort
	*cluster.Endpoint
}

// ending endpoints get connections only if no ready one is left: they are terminating.
func (c candidate) ending() bool { return !c.Ready && c.Serving && c.Terminating }

// priority orders what several slices say about one address: a pod may have the address of a terminating one, and an endpoint
// may be in two slices while it moves.
func (c candidate) priority() int {
	switch {
	case c.Ready && !c.Terminating:
		return 0
	case c.Ready:
		return 1
	}
	return 2
}

// candidates appends the endpoints of a port that may get connections, of one family, sorted by address, without duplicates.
func candidates(into []candidate, port *cluster.ServicePort, ipv4 bool, endpointSlices []*cluster.EndpointSlice) []candidate {
	for _, slice := range endpointSlices {
		for i := range slice.Ports {
			if p := &slice.Ports[i]; p.Number != 0 && p.Name == port.Name && p.Protocol == port.Protocol {
				for j := range slice.Endpoints {
					e := &slice.Endpoints[j]
					c := candidate{netip.AddrPortFrom(e.Address, p.Number), e}
					if e.Address.Is4() == ipv4 && (e.Ready || c.ending()) {
						into = append(into, c)
					}
				}
			}
		}
	}
	slices.SortStableFunc(into, func(a, b candidate) int {
		if order := a.at.Compare(b.at); order != 0 {
			return order
		}
		return a.priority() - b.priority()
	})
	return slices.CompactFunc(into, func(a, b candidate) bool { return a.at == b.at })
}

// sets are the backends of a port of a Service in one family for the traffic policies Cluster and Local, in the order of
// candidates.
type sets struct{ cluster, local []netip.AddrPort }

// choose selects the candidates that get connections from this node: ready endpoints, or terminating ones if there is no ready
// one.
//
// https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-to-terminating-endpoints
func choose(all []candidate, node *NodeConfig, wantLocal bool) sets {
	var chosen sets
	nearby := hinted(all, node)
	chosen.cluster = pick(all, func(c candidate) bool { return c.Ready && nearby(c) })
	if len(chosen.cluster) == 0 {
		chosen.cluster = pick(all, candidate.ending)
	}
	if !wantLocal {
		return chosen
	}
	chosen.local = pick(all, func(c candidate) bool { return c.Ready && c.Node == node.Name })
	if len(chosen.local) == 0 {
		chosen.local = pick(all, func(c candidate) bool { return c.ending() && c.Node == node.Name })
	}
	if slices.Equal(chosen.local, chosen.cluster) {
		chosen.local = chosen.cluster
	}
	return chosen
}

// pick returns the addresses of some candidates in a list of exactly that size: there are as many lists as Services.
func pick(all []candidate, wanted func(candidate) bool) []netip.AddrPort {
	count := 0
	for _, c := range all {
		if wanted(c) {
			count++
		}
	}
	count = min(count, MaxBackends)
	if count == 0 {
		return nil
	}
	picked := make([]netip.AddrPort, 0, count)
	for _, c := range all {
		if wanted(c) && len(picked) < count {
			picked = append(picked, c.at)
		}
	}
	return picked
}

// hinted returns the endpoints for connections of this node. Hints for nodes count if every ready endpoint has one and some
// have one for this node; else hints for zones count under the same conditions; else all endpoints do: incomplete hints, as
// during a change, could leave a node without endpoints.
//
// https://kubernetes.io/docs/concepts/services-networking/topology-aware-routing/#safeguards
func hinted(all []candidate, node *NodeConfig) func(candidate) bool {
	forNodes := func(h *cluster.EndpointHints) []string { return h.ForNodes }
	forZones := func(h *cluster.EndpointHints) []string { return h.ForZones }
	if usable(all, forNodes, node.Name) {
		return func(c candidate) bool { return slices.Contains(c.Hints.ForNodes, node.Name) }
	}
	if usable(all, forZones, node.Zone) {
		return func(c candidate) bool { return slices.Contains(c.Hints.ForZones, node.Zone) }
	}
	return func(candidate) bool { return true }
}

func usable(all []candidate, hints func(*cluster.EndpointHints) []string, here string) bool {
	found := false
	for _, c := range all {
		if !c.Ready {
			continue
		}
		if c.Hints == nil {
			return false
		}
		of := hints(c.Hints)
		if len(of) == 0 {
			return false
		}
		found = found || slices.Contains(of, here)
	}
	return found
}
