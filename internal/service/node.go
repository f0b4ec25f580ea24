package service

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// NodeConfig is what the translation has to know of the node that it is for.
type NodeConfig struct {
	// Name is that of the Node object, by which endpoints say where they are.
	Name string
	// Zone is where the node is (label topology.kubernetes.io/zone). A Translator takes it from the snapshot's Node instead
	// if there is one.
	Zone string
	// NodePortAddresses are the node's own addresses on which NodePorts answer. Loopback addresses among them answer only
	// to the node itself.
	NodePortAddresses []netip.Addr
	// HostPortAddresses are the node's own addresses, loopback as above: hostPorts answer on these and no others.
	HostPortAddresses []netip.Addr
	// Pods are addresses of pods here that are not in a pod range of a Node.
	Pods []netip.Addr
	// APIServer is where the agent reaches the API server: no frontend takes that, but the cluster IP of the Service default/kubernetes.
	APIServer []netip.AddrPort
	// ExternalIPs are the networks of which Services may have addresses in their externalIPs; none allows none.
	ExternalIPs []netip.Prefix
	// Limits bound what one Service and one namespace take of the tables.
	Limits Limits
	// DSR lets backends of other nodes answer clients of the world directly, where nothing in the Service speaks against it.
	DSR bool
}

// HostPort is a port of this node that a pod on it has asked for (CNI capability portMappings).
type HostPort struct {
	Pod      cluster.Key
	Protocol cluster.Protocol
	// Number is the port of the node.
	Number uint16
	// Address is the hostIP: the one address on which the port answers. Zero or unspecified is all of HostPortAddresses.
	Address netip.Addr
	// Backends are the pod's own addresses with its containerPort, at most one of each family.
	Backends []netip.AddrPort
}

// hostPortName is the name of the port in PortName. No port of a Service can have it, since those are in lower case: a pod
// may have the name of a Service.
const hostPortName = "hostPort"

func (h *HostPort) equal(other *HostPort) bool {
	return h.Pod == other.Pod && h.Protocol == other.Protocol && h.Number == other.Number && h.Address == other.Address &&
		slices.Equal(h.Backends, other.Backends)
}

func (h *HostPort) name() PortName {
	return PortName{Service: h.Pod, Port: hostPortName, Number: h.Number, Protocol: h.Protocol}
}

// addresses are those of the node on which the port answers. A pod may ask for any address, such as that of the cloud's metadata service: what
// the node has not is not the pod's to take.
func (h *HostPort) addresses(node *NodeConfig) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(node.HostPortAddresses), func(a netip.Addr) bool {
		switch {
		case node.takesAPIServer(Frontend{a, h.Number, h.Protocol}, h.Pod) != "":
			return true
		case !h.Address.IsValid():
			return false
		case h.Address.IsUnspecified():
			return a.Is4() != h.Address.Is4()
		}
		return a != h.Address
	})
}

// problem says why the port does not answer where it was asked for; empty if it does.
func (h *HostPort) problem(node *NodeConfig) string {
	wording := fmt.Sprintf("Pod %s: hostPort %d/%s does not answer", h.Pod, h.Number, h.Protocol)
	if h.Address.IsValid() && !h.Address.IsUnspecified() && !slices.Contains(node.HostPortAddresses, h.Address) {
		return fmt.Sprintf("%s: its hostIP %s is not an address of this node", wording, h.Address)
	}
	for _, a := range node.HostPortAddresses {
		asked := !h.Address.IsValid() || h.Address == a || h.Address.IsUnspecified() && h.Address.Is4() == a.Is4()
		if why := node.takesAPIServer(Frontend{a, h.Number, h.Protocol}, h.Pod); asked && why != "" {
			return fmt.Sprintf("%s at %s: %s", wording, a, why)
		}
	}
	return ""
}

// hostPortProblems are those of the ports of one pod.
func hostPortProblems(hostPorts []HostPort, node *NodeConfig) (all []string) {
	for i := range hostPorts {
		if p := hostPorts[i].problem(node); p != "" {
			all = append(all, p)
		}
	}
	return all
}

// TranslateHostPorts gives the ports that the host ports of one pod make. If two are at the same address, as when the pod was made
// anew and what was before is not gone yet, the later one answers.
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
	return Entry{Frontend: frontend, Kind: KindHostPort, Inside: inside, Outside: outside(frontend, inside)}
}

// outside is what a frontend gives to what arrives from the wire. No packet of a wire has a loopback address (RFC 1122, 3.2.1.3; RFC 4291,
// 2.5.3).
func outside(frontend Frontend, backends Backends) Backends {
	if frontend.Address.IsLoopback() {
		return Backends{Without: Pass}
	}
	return backends
}
