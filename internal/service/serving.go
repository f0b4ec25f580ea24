package service

import (
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// serving counts for each backend how many ports of EndpointSlices, and of this node, say that it serves. These are more than
// those with new connections: a backend that is terminating, hinted to other nodes, or of a deleted Service may still serve its
// connections.
type serving struct {
	counts map[backend]uint32
	// ended are those whose count has become zero since the last call of stopped.
	ended []backend
}

// backend is a key with half the size of an AddrPort and its protocol: a large cluster has 100,000 of them.
type backend struct {
	address  [16]byte
	port     uint16
	protocol cluster.Protocol
}

// replace replaces one slice by another; both may be nil.
func (a *serving) replace(before, after *cluster.EndpointSlice) {
	each(after, a.begin)
	each(before, a.end)
}

// replaceHostPorts replaces host ports by others.
func (a *serving) replaceHostPorts(before, after []HostPort) {
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

func (a *serving) begin(b backend) { a.counts[b]++ }

func (a *serving) end(b backend) {
	if a.counts[b]--; a.counts[b] == 0 {
		delete(a.counts, b)
		a.ended = append(a.ended, b)
	}
}

// has reports whether a backend, or UDP at the same address and port, serves.
func (a *serving) has(b backend) bool {
	udp := b
	udp.protocol = cluster.UDP
	return a.counts[b] > 0 || a.counts[udp] > 0
}

// take makes stopped return those of the backends that do not serve.
func (a *serving) take(all []Backend) {
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

// stopped returns the backends that ended since the last call and are not back, sorted, and those of them that served UDP.
// Backends that still serve UDP are left out: flushing connections to a stopped backend, which matters for UDP above all, does
// not distinguish protocols.
func (a *serving) stopped() (all, udp []netip.AddrPort) {
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

// sortedOnce sorts in place and removes duplicates.
func sortedOnce(all []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}
