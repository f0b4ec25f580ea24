package agentapi

import "net/netip"

// ServiceFilter says which Services are asked for. What is empty leaves none out.
type ServiceFilter struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// ServicePort is one port of one Service on this node, or a port of this node that leads to a pod.
type ServicePort struct {
	// Namespace and Name are those of the Service; of the pod, if the only kind is HostPort.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Port is the name of the port, Number what the Service says; Protocol is one of Protocols.
	Port     string `json:"port,omitempty"`
	Number   uint16 `json:"number"`
	Protocol string `json:"protocol"`
	// AffinitySeconds is how long a client stays with its backend; 0 is no affinity.
	AffinitySeconds int64 `json:"affinitySeconds,omitempty"`
	// InternalLocal and ExternalLocal are traffic policies: only backends of this node get connections, from inside or outside of the cluster.
	InternalLocal bool       `json:"internalLocal,omitempty"`
	ExternalLocal bool       `json:"externalLocal,omitempty"`
	Frontends     []Frontend `json:"frontends"`
	// Backends are all endpoints of the port, also those that get no connections now.
	Backends []Backend `json:"backends"`
	// Connections got a backend; Refused did not, for want of one or because of their source. Both count on this node.
	Connections uint64 `json:"connections"`
	Refused     uint64 `json:"refused"`
}

// Frontend is an address at which a Service answers on this node, as the kernel has it.
type Frontend struct {
	// Kind is ClusterIP, NodePort, LoadBalancer, ExternalIP or HostPort.
	Kind    string     `json:"kind"`
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port"`
	// Sources are who may use it; none means everybody.
	Sources []netip.Prefix `json:"sources,omitempty"`
	// DSR says that backends of other nodes answer clients of the world directly.
	DSR bool `json:"dsr,omitempty"`
	// Inside is for pods and the node itself, Outside for what arrives from the wire.
	Inside  ServiceSide `json:"inside"`
	Outside ServiceSide `json:"outside"`
}

// The algorithms by which connections get a backend.
const (
	AlgorithmRandom = "random"
	AlgorithmMaglev = "maglev"
)

// What becomes of connections without a backend.
const (
	WithoutRefuse = "refuse"
	WithoutDrop   = "drop"
	WithoutPass   = "pass" // the frontend does not answer on that side
)

// ServiceSide is where connections from one side go.
type ServiceSide struct {
	Backends []netip.AddrPort `json:"backends,omitempty"`
	// Without says what becomes of them if there are no backends; empty if there are.
	Without string `json:"without,omitempty"`
	// Algorithm is how one is chosen, TableSize the length of the table of consistent hashing.
	Algorithm string `json:"algorithm,omitempty"`
	TableSize int    `json:"tableSize,omitempty"`
}

// Backend is an endpoint of a Service with what the cluster tells of it.
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
