// Package service turns Kubernetes Services and EndpointSlices into what one node's datapath has to hold: which
// addresses and ports answer, and which backends connections to them may go to. It is pure: no clients, no kernel.
package service

import (
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Frontend is where a Service answers.
type Frontend struct {
	Address  netip.Addr
	Port     uint16
	Protocol cluster.Protocol
}

// Kind says for what reason a frontend is there.
type Kind string

// The kinds.
const (
	KindClusterIP    Kind = "ClusterIP"
	KindNodePort     Kind = "NodePort"
	KindExternalIP   Kind = "ExternalIP"
	KindLoadBalancer Kind = "LoadBalancer"
	// KindHostPort is a port of this node that the runtime asks for when it makes a pod; no Service has it.
	KindHostPort Kind = "HostPort"
)

// Backend is where connections of one protocol go.
type Backend struct {
	Address  netip.AddrPort
	Protocol cluster.Protocol
}

// WithoutBackend says what becomes of connections for which there is no backend.
type WithoutBackend uint8

// What becomes of them.
const (
	// Refuse answers with TCP RST or ICMP port unreachable: the Service has no endpoints.
	Refuse WithoutBackend = iota
	// Drop is for a traffic policy Local without an endpoint on this node.
	Drop
	// Pass leaves packets alone: the frontend does not answer on that side.
	Pass
)

// Backends are those that connections from one side may go to.
type Backends struct {
	// Addresses are sorted, each once.
	Addresses []netip.AddrPort
	// Without is for an empty list.
	Without WithoutBackend
	// Maglev asks for consistent hashing: every node then sends one connection to one backend. Else any will do.
	Maglev bool
}

// Entry is one frontend and where its connections go.
type Entry struct {
	Frontend Frontend
	Kind     Kind
	// Inside is for pods and the node itself, Outside for what arrives from the wire.
	Inside, Outside Backends
	// Affinity is how long a client stays with its backend; 0 is no affinity.
	Affinity time.Duration
	// Sources are who may use the frontend; none means everybody.
	Sources []netip.Prefix
	// DSR lets backends of other nodes answer clients of the world directly.
	DSR bool
}

// PortName names one port of one Service. For KindHostPort, Service is the pod.
type PortName struct {
	Service  cluster.Key
	Port     string
	Number   uint16
	Protocol cluster.Protocol
}

// IsHostPort tells whether it is a port of a pod, which may have the name of a Service.
func (n PortName) IsHostPort() bool { return n.Port == hostPortName }

// Port is all that the datapath holds of one port of one Service.
type Port struct {
	Name    PortName
	Entries []Entry
}
