package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// NodeConfig is what the translation needs to know about its node.
type NodeConfig struct {
	// Name is the name of the Node object, which endpoints refer to.
	Name string
	// Zone is the node's (label topology.kubernetes.io/zone). A Translator uses the snapshot's Node instead if there is one.
	Zone string
	// NodePortAddresses are the node's own addresses for NodePorts. Loopback addresses among them serve only the node itself.
	NodePortAddresses []netip.Addr
	// HostPortAddresses are the node's own addresses for hostPorts; loopback as above.
	HostPortAddresses []netip.Addr
	// Pods are addresses of local pods outside the pod ranges of all Nodes.
	Pods []netip.Addr
	// APIServer is where the agent reaches the API server: no frontend may have it, except the cluster IP of Service
	// default/kubernetes.
	APIServer []netip.AddrPort
	// ExternalIPs are the networks that externalIPs of Services may be in; none allows none.
	ExternalIPs []netip.Prefix
	// Limits limit what one Service and one namespace may use of the tables.
	Limits Limits
	// DSR lets backends on other nodes reply to external clients directly, unless the Service's configuration prevents it.
	DSR bool
}

// HostPort is a port of this node that a local pod requested (CNI capability portMappings).
type HostPort struct {
	Pod      cluster.Key
	Protocol cluster.Protocol
	// Number is the port of the node, in host byte order.
	Number uint16
	// Address is the hostIP: the one address of the port. Zero or unspecified means all of HostPortAddresses.
	Address netip.Addr
	// Backends are the pod's own addresses with its containerPort, at most one of each family.
	Backends []netip.AddrPort
}

// hostPortName is the port's name in PortName. No port of a Service has it, since those are in lower case: a pod may have the
// name of a Service.
const hostPortName = "hostPort"

func (h *HostPort) equal(other *HostPort) bool {
	return h.Pod == other.Pod && h.Protocol == other.Protocol && h.Number == other.Number && h.Address == other.Address &&
		slices.Equal(h.Backends, other.Backends)
}

func (h *HostPort) name() PortName {
	return PortName{Service: h.Pod, Port: hostPortName, Number: h.Number, Protocol: h.Protocol}
}

// addresses returns the node's addresses of the port. A pod may request any address, for example that of the cloud's metadata
// service; it only gets addresses of the node.
func (h *HostPort) addresses(node *NodeConfig) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(node.HostPortAddresses), func(a netip.Addr) bool {
		return !h.requests(a) || node.reservedForAPIServer(Frontend{a, h.Number, h.Protocol}, h.Pod) != ""
	})
}

// requests reports whether the port is requested at an address of the node.
func (h *HostPort) requests(a netip.Addr) bool {
	return !h.Address.IsValid() || h.Address == a || h.Address.IsUnspecified() && h.Address.Is4() == a.Is4()
}

// problem says why the port does not answer at the requested address; empty if it does.
func (h *HostPort) problem(node *NodeConfig) string {
	wording := fmt.Sprintf("Pod %s: hostPort %d/%s does not answer", h.Pod, h.Number, h.Protocol)
	if h.Address.IsValid() && !h.Address.IsUnspecified() && !slices.Contains(node.HostPortAddresses, h.Address) {
		return fmt.Sprintf("%s: its hostIP %s is not an address of this node", wording, h.Address)
	}
	for _, a := range node.HostPortAddresses {
		if why := node.reservedForAPIServer(Frontend{a, h.Number, h.Protocol}, h.Pod); why != "" && h.requests(a) {
			return fmt.Sprintf("%s at %s: %s", wording, a, why)
		}
	}
	return ""
}

// hostPortProblems returns those of the ports of one pod.
func hostPortProblems(hostPorts []HostPort, node *NodeConfig) (all []string) {
	for i := range hostPorts {
		if p := hostPorts[i].problem(node); p != "" {
			all = append(all, p)
		}
	}
	return all
}

// TranslateHostPorts returns the ports for the host ports of one pod. If two have the same address, as when a re-created pod's
// predecessor still exists, the later one wins.
func TranslateHostPorts(hostPorts []HostPort, node *NodeConfig) []Port {
	var ports []Port
	for i := range hostPorts {
		h := &hostPorts[i]
		at := slices.IndexFunc(ports, func(p Port) bool { return p.Name == h.name() })
		if at < 0 {
			at = len(ports)
			ports = append(ports, Port{Name: h.name()})
		}
		for _, addr := range h.addresses(node) {
			frontend := Frontend{Address: addr, Port: h.Number, Protocol: h.Protocol}
			for _, backend := range h.Backends {
				if backend.Addr().Is4() == addr.Is4() {
					ports[at].Entries = slices.DeleteFunc(ports[at].Entries, func(e Entry) bool { return e.Frontend == frontend })
					ports[at].Entries = append(ports[at].Entries, hostPortEntry(frontend, backend))
				}
			}
		}
	}
	return slices.DeleteFunc(ports, func(p Port) bool { return len(p.Entries) == 0 })
}

func hostPortEntry(frontend Frontend, backend netip.AddrPort) Entry {
	inside := Backends{Addresses: []netip.AddrPort{backend}}
	return Entry{Frontend: frontend, Kind: KindHostPort, Internal: inside, External: externalBackends(frontend, inside)}
}

// externalBackends returns a frontend's backends for packets from the wire. No such packet has a loopback address (RFC 1122,
// 3.2.1.3; RFC 4291, 2.5.3).
func externalBackends(frontend Frontend, backends Backends) Backends {
	if frontend.Address.IsLoopback() {
		return Backends{Without: Pass}
	}
	return backends
}
