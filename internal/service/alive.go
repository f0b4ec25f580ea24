package service

import (
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// alive counts how many ports of EndpointSlices, and of this node, say of a backend that it serves. That is more than gets new connections: what ends, or is
// hinted to other nodes, or belonged to a Service that was deleted, may still answer the connections that it has.
type alive struct {
	counts map[backend]uint32
	// ended are those whose count has come to zero since gone was last called.
	ended []backend
}

// backend is a key with half the size of an AddrPort and its protocol: there are 100,000 of them in a large cluster.
type backend struct {
	address  [16]byte
	port     uint16
	protocol cluster.Protocol
}

// replace counts one slice in another's place; both may be nil.
func (a *alive) replace(before, after *cluster.EndpointSlice) {
	each(after, a.begin)
	each(before, a.end)
}

// replaceHostPorts counts host ports in others' place.
func (a *alive) replaceHostPorts(before, after []HostPort) {
	for _, all := range []struct {
		of    []HostPort
		visit func(backend)
	}{{after, a.begin}, {before, a.end}} {
		for _, h := range all.of {
			for _, b := range h.Backends {
				all.visit(backendOf(b, h.Protocol))
			}
		}
	}
}

func (a *alive) begin(b backend) { a.counts[b]++ }

func (a *alive) end(b backend) {
	if a.counts[b]--; a.counts[b] == 0 {
		delete(a.counts, b)
		a.ended = append(a.ended, b)
	}
}

// has tells whether a backend, or UDP at the same place, serves.
func (a *alive) has(b backend) bool {
	udp := b
	udp.protocol = cluster.UDP
	return a.counts[b] > 0 || a.counts[udp] > 0
}

// take has gone tell of those of the backends that do not serve.
func (a *alive) take(all []Backend) {
	for _, b := range all {
		a.ended = append(a.ended, backendOf(b.Address, b.Protocol))
	}
}

func backendOf(at netip.AddrPort, protocol cluster.Protocol) backend {
	return backend{at.Addr().As16(), at.Port(), protocol}
}

func each(slice *cluster.EndpointSlice, visit func(backend)) {
	if slice == nil {
		return
	}
	for _, port := range slice.Ports {
		for _, e := range slice.Endpoints {
			if e.Ready || e.Serving {
				visit(backend{e.Address.As16(), port.Number, port.Protocol})
			}
		}
	}
}

// gone gives the backends that have ended since the last call and are not back, sorted, and those of them that served UDP. Those where UDP goes on are left out: whoever ends
// what goes on to a backend that is gone, which is UDP above all, does not tell protocols apart.
func (a *alive) gone() (all, udp []netip.AddrPort) {
	for _, b := range a.ended {
		if a.has(b) {
			continue
		}
		at := netip.AddrPortFrom(netip.AddrFrom16(b.address).Unmap(), b.port)
		all = append(all, at)
		if b.protocol == cluster.UDP {
			udp = append(udp, at)
		}
	}
	a.ended = nil
	return sortedOnce(all), sortedOnce(udp)
}

// sortedOnce sorts in place and leaves out what is there twice.
func sortedOnce(all []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}
