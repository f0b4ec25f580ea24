package agentapi

import "net/netip"

// ServiceFilter selects Services. An empty field matches all.
type ServiceFilter struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// ServicePort is one port of one Service on this node, or a port of this node that leads to a pod.
type ServicePort struct {
	// Namespace and Name are those of the Service; of the pod, if the only kind is HostPort.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Port is the name of the port, Number that in the Service; Protocol is one of Protocols.
	Port     string `json:"port,omitempty"`
	Number   uint16 `json:"number"`
	Protocol string `json:"protocol"`
	// AffinitySeconds is the timeout of client IP affinity; 0 means none.
	AffinitySeconds int64 `json:"affinitySeconds,omitempty"`
	// InternalLocal and ExternalLocal are traffic policies: only backends of this node get internal or external
	// connections.
	InternalLocal bool       `json:"internalLocal,omitempty"`
	ExternalLocal bool       `json:"externalLocal,omitempty"`
	Frontends     []Frontend `json:"frontends"`
	// Backends are all endpoints of the port, also endpoints that get no connections now.
	Backends []Backend `json:"backends"`
	// Connections got a backend; Rejected did not, for lack of one or because of their source. Both count on this
	// node.
	Connections uint64 `json:"connections"`
	Rejected    uint64 `json:"rejected"`
}

// Frontend is an address of a Service on this node, as it is in the kernel.
type Frontend struct {
	// Kind is ClusterIP, NodePort, LoadBalancer, ExternalIP or HostPort.
	Kind    string     `json:"kind"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	// Sources are the clients that may use it; none means all.
	Sources []netip.Prefix `json:"sources,omitempty"`
	// DSR says that backends of other nodes reply to external clients directly.
	DSR bool `json:"dsr,omitempty"`
	// Internal is for pods and the node itself, External for packets from the wire.
	Internal ServiceSide `json:"internal"`
	External ServiceSide `json:"external"`
}

// The load-balancing algorithms.
const (
	AlgorithmRandom = "random"
	AlgorithmMaglev = "maglev"
)

// The treatment of connections without a backend.
const (
	WithoutReject = "reject"
	WithoutDrop   = "drop"
	WithoutPass   = "pass" // the frontend is not translated on that side
)

// ServiceSide is the destination of connections from one side.
type ServiceSide struct {
	Backends []netip.AddrPort `json:"backends,omitempty"`
	// Without is the treatment of connections if there are no backends; empty if there are.
	Without string `json:"without,omitempty"`
	// Algorithm is how a backend is chosen, TableSize the length of the table of consistent hashing.
	Algorithm string `json:"algorithm,omitempty"`
	TableSize int    `json:"tableSize,omitempty"`
}

// Backend is an endpoint of a Service with its state in the cluster.
type Backend struct {
	Address     netip.AddrPort `json:"address"`
	Ready       bool           `json:"ready"`
	Serving     bool           `json:"serving"`
	Terminating bool           `json:"terminating"`
	// Local says that it is on this node.
	Local bool   `json:"local"`
	Node  string `json:"node,omitempty"`
	Zone  string `json:"zone,omitempty"`
}

// State gives the state in a word.
func (b Backend) State() string {
	switch {
	case b.Terminating && b.Serving:
		return "terminating"
	case b.Terminating:
		return "ending"
	case b.Ready:
		return "ready"
	case b.Serving:
		return "serving"
	}
	return "not ready"
}
