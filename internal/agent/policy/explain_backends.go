package policy

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/agent/lb"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/policy/evaluate"
	"github.com/beeline-cni/beeline/internal/service"
)

// entrance is a node that chooses backends for connections to a Service.
type entrance struct {
	// node is empty if it is not known.
	node string
	// inside says that it is the client's: the client is the node itself, or a pod on it.
	inside bool
	// address is what backends see if the node masquerades connections; invalid if unknown.
	address netip.Addr
}

// backendsAt gives the backends of a Service for connections to one of its addresses, each once for every path to it.
func (x explainer) backendsAt(from evaluate.Endpoint, s *requestedService, at netip.AddrPort) (all []destination) {
	entrances := x.entrances(from, s, at)
	entries := make([]service.Entry, len(entrances))
	for i, e := range entrances {
		entries[i] = x.translate(s, at, e.node)
	}
	var seen []netip.AddrPort
	for _, slice := range x.slicesOf(s.Service) {
		for _, p := range slice.Ports {
			if p.Name != s.port.Name || p.Protocol != s.port.Protocol {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				backend := netip.AddrPortFrom(endpoint.Address, p.Number)
				if endpoint.Address.Is4() != at.Addr().Is4() || slices.Contains(seen, backend) {
					continue
				}
				seen = append(seen, backend)
				all = append(all, x.pathsTo(from, s, at, endpoint, backend, entrances, entries)...)
			}
		}
	}
	return all
}

// pathsTo gives a backend as a destination from all entrances that choose it; those where it sees the client itself
// come first.
func (x explainer) pathsTo(from evaluate.Endpoint, s *requestedService, at netip.AddrPort, endpoint cluster.Endpoint, backend netip.AddrPort,
	entrances []entrance, entries []service.Entry,
) (paths []destination) {
	to := destination{end: evaluate.Endpoint{Address: backend.Addr()}, port: backend.Port(), service: s.Key().String()}
	node := endpoint.Node
	if node == "" {
		node = x.nodeAt(backend.Addr())
	}
	for i, e := range entrances {
		path, chosen := to, entries[i].External
		if e.inside {
			chosen = entries[i].Internal
		}
		if x.options.Services != lb.ModeEBPF || !e.inside {
			path.sentTo = at
		}
		// A node accepts no packet with its own source address from the wire: replies to clients on the backend's
		// node go through the entrance.
		direct := entries[i].DSR && (node == "" || node != x.nodeOf(from))
		path.seen = x.seenAs(from, s, e, direct, cluster.Endpoint{Address: backend.Addr(), Node: node})
		path.unused = !slices.Contains(chosen.Addresses, backend)
		paths = append(paths, path)
	}
	slices.SortStableFunc(paths, func(a, b destination) int { return cmp.Compare(a.rank(), b.rank()) })
	if isUnused := func(d destination) bool { return d.unused }; slices.ContainsFunc(paths, func(d destination) bool { return !d.unused }) {
		paths = slices.DeleteFunc(paths, isUnused)
	} else {
		paths = paths[:1]
	}
	for i := range paths {
		paths[i].again = i > 0
	}
	return paths
}

// rank orders the paths to one backend.
func (d destination) rank() int {
	if d.seen == (evaluate.Endpoint{}) {
		return 0
	}
	return 1
}

// entrances are the nodes that may choose the backend: for a Service's addresses the client's own node, for a node's
// address only that node. External clients of load balancer addresses may reach any node.
func (x explainer) entrances(from evaluate.Endpoint, s *requestedService, at netip.AddrPort) (all []entrance) {
	client := x.nodeOf(from)
	switch {
	case s.kind == service.KindNodePort:
		e := entrance{s.node, from.Node || client == s.node, x.addressOfNode(s.node, at.Addr().Is4())}
		if !e.address.IsValid() {
			e.address = at.Addr()
		}
		return []entrance{e}
	case s.kind == service.KindClusterIP || from.Node || client != "" || from.Pod != (cluster.Key{}):
		return []entrance{{client, true, x.addressOfNode(client, at.Addr().Is4())}}
	}
	for _, n := range x.reported.Nodes {
		all = append(all, entrance{node: n.Name, address: x.addressOfNode(n.Name, at.Addr().Is4())})
	}
	if len(all) == 0 {
		all = []entrance{{}}
	}
	return all
}

// translate gives the frontend of a Service's address on one node. An unknown node has no local endpoints.
func (x explainer) translate(s *requestedService, at netip.AddrPort, node string) service.Entry {
	only := *s.Service
	only.Ports = []cluster.ServicePort{*s.port}
	only.InternalLocal, only.ExternalLocal = only.InternalLocal && node != "", only.ExternalLocal && node != ""
	config := service.NodeConfig{Name: node, DSR: x.options.DSR, ExternalIPs: []netip.Prefix{netip.PrefixFrom(at.Addr(), at.Addr().BitLen())}}
	if reported, ok := x.reported.Node(node); ok {
		config.Zone = reported.Zone
	}
	if s.kind == service.KindNodePort {
		config.NodePortAddresses = []netip.Addr{at.Addr()}
	}
	for _, p := range service.Translate(&only, x.slicesOf(s.Service), &config).Ports {
		for _, e := range p.Entries {
			if e.Frontend.Address == at.Addr() && e.Frontend.Port == at.Port() {
				return e
			}
		}
	}
	return service.Entry{}
}

// seenAs gives what a backend sees as the source, if it is not the client; else the zero Endpoint. direct says that
// the backend replies directly.
func (x explainer) seenAs(from evaluate.Endpoint, s *requestedService, e entrance, direct bool, backend cluster.Endpoint) evaluate.Endpoint {
	if from.Node {
		if s.kind == service.KindNodePort {
			return evaluate.Endpoint{Address: e.address} // the node itself, to its own pods
		}
		return evaluate.Endpoint{}
	}
	if s.kind == service.KindClusterIP || !e.address.IsValid() {
		return evaluate.Endpoint{}
	}
	var forwarded bool
	switch x.options.Services {
	case lb.ModeEBPF:
		forwarded = !e.inside && e.node != backend.Node && !direct
	case lb.ModeKubeProxy: // masquerades unless a traffic policy keeps the connection on the node
		forwarded = !s.ExternalLocal && !(e.inside && (x.isNode(from) || x.has(from, backend.Address)))
	}
	if !forwarded {
		return evaluate.Endpoint{}
	}
	return evaluate.Endpoint{Address: e.address, Masqueraded: true}
}

// has reports whether an end has an address.
func (x explainer) has(e evaluate.Endpoint, address netip.Addr) bool {
	if pod := podOf(x.snapshot, e.Pod); pod != nil {
		return slices.Contains(pod.Addresses, address)
	}
	return e.Address == address
}

// isNode reports whether an end has an address of a node.
func (x explainer) isNode(e evaluate.Endpoint) bool {
	if pod := podOf(x.snapshot, e.Pod); pod != nil {
		return pod.HostNetwork
	}
	return slices.ContainsFunc(x.snapshot.Nodes, func(n cluster.Node) bool { return slices.Contains(n.Addresses, e.Address) })
}

// nodeOf names the node of an end; empty if there is none, or if it is unknown.
func (x explainer) nodeOf(e evaluate.Endpoint) string {
	if pod := podOf(x.snapshot, e.Pod); pod != nil {
		if pod.Node != "" || len(pod.Addresses) == 0 {
			return pod.Node
		}
		return x.nodeAt(pod.Addresses[0])
	}
	return x.nodeAt(e.Address)
}

// nodeAt names the node that has an address, a pod with it, or the pod range that contains it.
func (x explainer) nodeAt(address netip.Addr) string {
	for p := range x.snapshot.Pods.All() {
		if p.Node != "" && !p.Ended && !p.HostNetwork && slices.Contains(p.Addresses, address) {
			return p.Node
		}
	}
	for _, n := range x.snapshot.Nodes {
		if slices.Contains(n.Addresses, address) || slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(address) }) {
			return n.Name
		}
	}
	return ""
}

// addressOfNode gives the first address of a family of a Node; invalid if there is none.
func (x explainer) addressOfNode(name string, ipv4 bool) netip.Addr {
	reported, _ := x.reported.Node(name)
	for _, a := range reported.Addresses {
		if a.Is4() == ipv4 {
			return a
		}
	}
	return netip.Addr{}
}
