// Package service translates Services and EndpointSlices into the desired state of one node's datapath: frontends and their
// backends. It is pure: it has no clients and makes no system calls.
package service

import (
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// Frontend is an address, port and protocol of a Service.
type Frontend struct {
	Address  netip.Addr
	Port     uint16
	Protocol cluster.Protocol
}

// Kind says why a frontend exists.
type Kind string

// The kinds.
const (
	KindClusterIP    Kind = "ClusterIP"
	KindNodePort     Kind = "NodePort"
	KindExternalIP   Kind = "ExternalIP"
	KindLoadBalancer Kind = "LoadBalancer"
	// KindHostPort is a port of this node that the runtime requests for a pod; no Service has it.
	KindHostPort Kind = "HostPort"
)

// Backend is a destination of connections of one protocol.
type Backend struct {
	Address  netip.AddrPort
	Protocol cluster.Protocol
}

// WithoutBackend says what happens to connections without a backend.
type WithoutBackend uint8

// The possible values.
const (
	// Reject answers with TCP RST or ICMP port unreachable: the Service has no endpoints.
	Reject WithoutBackend = iota
	// Drop is for a traffic policy Local without an endpoint on this node.
	Drop
	// Pass leaves packets alone: the frontend does not answer on that side.
	Pass
)

// Backends are the possible destinations of connections from one side.
type Backends struct {
	// Addresses are sorted, without duplicates.
	Addresses []netip.AddrPort
	// Without is for an empty list.
	Without WithoutBackend
	// Maglev requests consistent hashing: every node sends a connection to the same backend.
	Maglev bool
}

// Entry is one frontend with its backends.
type Entry struct {
	Frontend Frontend
	Kind     Kind
	// Internal is for pods and the node itself, External for packets from the wire.
	Internal, External Backends
	// Affinity is how long a client stays with its backend; 0 is no affinity.
	Affinity time.Duration
	// Sources are the networks that may use the frontend; none means all.
	Sources []netip.Prefix
	// DSR lets backends on other nodes reply to external clients directly.
	DSR bool
}

// PortName names one port of one Service. For KindHostPort, Service is the pod.
type PortName struct {
	Service  cluster.Key
	Port     string
	Number   uint16
	Protocol cluster.Protocol
}

// IsHostPort reports whether it is a port of a pod, which may have the name of a Service.
func (n PortName) IsHostPort() bool { return n.Port == hostPortName }

// Port is the desired state of one port of one Service.
type Port struct {
	Name    PortName
	Entries []Entry
}
