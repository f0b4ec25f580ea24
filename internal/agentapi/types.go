// Package agentapi is the API that the agent serves on its unix socket: types and client. Package server mounts it.
// It imports neither cilium/ebpf nor a Kubernetes package, so that the CNI plugin stays small.
package agentapi

import (
	"net/netip"
	"time"
)

// DefaultSocket is where the agent listens unless told otherwise.
const DefaultSocket = "/run/beeline/agent.sock"

// PodRef names the pod that an endpoint belongs to. All fields may be empty: outside Kubernetes a
// container has no pod.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Attachment identifies one interface of one container, as the CNI specification does.
type Attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// AddRequest asks the agent to make an endpoint of a pod device that already exists: the plugin has
// created the pair and moved one end into the pod. An endpoint exists if and only if its host device does.
type AddRequest struct {
	Attachment
	// Network is the name of the CNI network, for GC: a runtime lists what is valid of one network.
	Network     string `json:"network"`
	Netns       string `json:"netns"`
	Pod         PodRef `json:"pod"`
	HostDevice  string `json:"hostDevice"`
	HostIfIndex int    `json:"hostIfIndex"`
	// HostMAC and PodMAC are the link-layer addresses of the two ends, in colon notation.
	HostMAC string `json:"hostMAC"`
	PodMAC  string `json:"podMAC"`
	// ThroughStack leaves what the pod sends and receives to the host's stack, with eBPF routing too: it says
	// in a few words why (see Endpoint.ThroughStack). Empty leaves the way to the agent's routing.
	ThroughStack string `json:"throughStack,omitempty"`
	// PortMappings are ports of the node that lead to the pod. An agent that does not translate them leaves them to a plugin that is
	// chained after this one, and the pod to the host's stack, unless Direct says that the network's pods never go there.
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	Direct       bool          `json:"direct,omitempty"`
}

// Protocols are the transport protocols of ports, as Kubernetes writes them.
var Protocols = []string{"TCP", "UDP", "SCTP"}

// PortMapping is a port of the node that leads to a port of a pod (hostPort).
type PortMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	// Protocol is one of Protocols.
	Protocol string `json:"protocol"`
	// HostIP is the one address of the node on which the port is; none, 0.0.0.0 or :: is all of them (of a family).
	HostIP netip.Addr `json:"hostIP,omitzero"`
}

// DeleteRequest asks the agent to remove an endpoint with its host device.
type DeleteRequest struct {
	Attachment
	// HostIfIndex is the index of the device that is to go: the container may have another one of the name by the time that the agent comes to the
	// request, when nobody waits for the answer any more. NoDevice is none, 0 whichever has the name.
	HostIfIndex int `json:"hostIfIndex,omitempty"`
}

// NoDevice is the index in a DeleteRequest of a container that has no device: there is only its endpoint to remove.
const NoDevice = -1

// AddResponse is what the plugin configures inside the pod.
type AddResponse struct {
	// Addresses are host prefixes (/32, /128), at most one of each family.
	Addresses []netip.Prefix `json:"addresses"`
	// Gateways are the static next hops, one for each family in Addresses, in the same order. They are
	// link-scoped addresses (169.254.1.1, fe80::1) for which the plugin installs a permanent neighbour
	// entry with HostMAC, so no pod ever asks for its gateway.
	Gateways []netip.Addr `json:"gateways"`
	// MTU of the pod's device, in bytes, without the link-layer header.
	MTU int `json:"mtu"`
}

// StateReady is the State of an endpoint with which nothing is wrong.
const StateReady = "ready"

// Endpoint is one pod interface as the agent knows it.
type Endpoint struct {
	Attachment
	Network     string       `json:"network"`
	Pod         PodRef       `json:"pod"`
	Netns       string       `json:"netns"`
	HostDevice  string       `json:"hostDevice"`
	HostIfIndex int          `json:"hostIfIndex"`
	HostMAC     string       `json:"hostMAC"`
	PodMAC      string       `json:"podMAC"`
	Addresses   []netip.Addr `json:"addresses"`
	MTU         int          `json:"mtu"`
	// Namespace is the id that the kernel has for the pod's network namespace in the host's, plus 1: by it the datapath finds the pod's sockets.
	// 0 if it is not known.
	Namespace int `json:"namespace,omitempty"`
	// ThroughStack says in a few words why the pod's packets go through the host's stack, as in "port mapping".
	// It is empty when they go directly.
	ThroughStack string `json:"throughStack,omitempty"`
	// Added is when the endpoint was made; unknown of those that were there before agents noted it.
	Added time.Time `json:"added,omitzero"`
	// PortMappings are the ports of the node that the agent leads to the pod.
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	// State is StateReady, or a sentence that says what is wrong.
	State string `json:"state"`
}

// GCRequest lists the attachments to a network that the runtime still knows; every other endpoint of that
// network is removed. Endpoints of other networks are left alone.
type GCRequest struct {
	Network string       `json:"network"`
	Valid   []Attachment `json:"valid"`
}

// Feature is one optional kernel capability as probed once at agent start.
type Feature struct {
	Name    string `json:"name"`
	Present bool   `json:"present"`
	// Gives says what the feature is used for, Needs which kernel version or option brings it,
	// Instead what Beeline does without it.
	Gives   string `json:"gives"`
	Needs   string `json:"needs,omitempty"`
	Instead string `json:"instead,omitempty"`
}

// Program is one loaded BPF program. RunCount and RunTime are zero unless kernel.bpf_stats_enabled is set.
type Program struct {
	Name     string `json:"name"`
	ID       uint32 `json:"id"`
	Tag      string `json:"tag"`
	Attached int    `json:"attached"`
	RunCount uint64 `json:"runCount"`
	// RunTime is the sum over all runs, in nanoseconds.
	RunTime uint64 `json:"runTimeNanoseconds"`
	// Instructions is the number of instructions the verifier walked at load.
	Instructions uint32 `json:"verifiedInstructions"`
}

// Map is one BPF map with its memory as the kernel charges it.
type Map struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Entries    int    `json:"entries"`
	MaxEntries uint32 `json:"maxEntries"`
	Bytes      uint64 `json:"bytes"`
}

// Pool is the use of one pod address range of this node.
type Pool struct {
	Prefix netip.Prefix `json:"prefix"`
	Used   int          `json:"used"`
	// Free may be math.MaxInt64 for an IPv6 range too large to count.
	Free int64 `json:"free"`
}

// Choice is one setting in force: what was asked for, what was chosen, and why.
type Choice struct {
	Name   string `json:"name"`
	Asked  string `json:"asked"`
	Chosen string `json:"chosen"`
	Why    string `json:"why"`
}

// Uplink is the device that carries traffic to other nodes.
type Uplink struct {
	Name      string         `json:"name"`
	IfIndex   int            `json:"ifIndex"`
	MAC       string         `json:"mac"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses"`
}

// The ways to another node.
const (
	// WayDirect is over the link that both nodes are on.
	WayDirect = "direct"
	// WayVXLAN is through a tunnel.
	WayVXLAN = "vxlan"
	// WayRouted is by the routers between the nodes, which have to know the pod ranges.
	WayRouted = "routed"
)

// RemoteNode is another node of the cluster and how packets get there.
type RemoteNode struct {
	Name      string         `json:"name"`
	Addresses []netip.Addr   `json:"addresses"`
	PodCIDRs  []netip.Prefix `json:"podCIDRs"`
	// Way is how packets get to its pods: WayDirect, WayVXLAN, WayRouted, or two of these with a comma.
	Way string `json:"way"`
	// MTU of the way in bytes, the smallest where there are two; 0 where the host's stack finds out.
	MTU int `json:"mtu,omitempty"`
	// MAC is empty while the neighbour is unresolved; the kernel then resolves it packet by packet.
	MAC string `json:"mac,omitempty"`
}

// Cluster is where the cluster's state comes from, and how much of it there is.
type Cluster struct {
	// From names the source: an API server or a directory.
	From string `json:"from"`
	// Reachable says that the source answers; Outages is how often it stopped to since the agent started.
	Reachable bool           `json:"reachable"`
	Outages   int            `json:"outages"`
	Objects   []ClusterCount `json:"objects"`
}

// ClusterCount is the number of objects of one kind.
type ClusterCount struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	// Known says that the source has had the whole list.
	Known bool `json:"known"`
}

// Translation is what this node translates: connections to Services, and what pods send to the world.
type Translation struct {
	// Ports counts ports of Services, Frontends their addresses on this node.
	Ports     int `json:"ports"`
	Frontends int `json:"frontends"`
	// Connections are those that are translated packet by packet, as they were when last looked at.
	Connections []ConnectionCount `json:"connections,omitempty"`
	// Expired counts entries of both tables of connections that were removed since the agent started, Destroyed sockets that were
	// connected to backends which are gone.
	Expired   uint64 `json:"expired"`
	Destroyed uint64 `json:"destroyedSockets"`
}

// ConnectionCount counts connections that are alike.
type ConnectionCount struct {
	// Kind is service, masquerade, direct (DSR) or plain (known, and not translated).
	Kind     string `json:"kind"`
	Protocol string `json:"protocol"`
	State    string `json:"state"`
	Count    int    `json:"count"`
}

// Status is everything `beeline status` prints.
type Status struct {
	Version  string   `json:"version"`
	Node     string   `json:"node"`
	Kernel   string   `json:"kernel"`
	PID      int      `json:"pid"`
	Started  string   `json:"started"`
	Ready    bool     `json:"ready"`
	Problems []string `json:"problems,omitempty"`
	Choices  []Choice `json:"choices"`
	Cluster  Cluster  `json:"cluster"`
	Uplink   *Uplink  `json:"uplink,omitempty"`
	// Uplinks are all devices to the world, that to the other nodes first.
	Uplinks     []Uplink     `json:"uplinks,omitempty"`
	Translation Translation  `json:"translation"`
	Policy      PolicyStatus `json:"policy"`
	Features    []Feature    `json:"features"`
	Programs    []Program    `json:"programs"`
	Maps        []Map        `json:"maps"`
	Pools       []Pool       `json:"pools"`
	Nodes       []RemoteNode `json:"nodes"`
	Endpoints   int          `json:"endpoints"`
}

// Drop is one counter: packets dropped for one reason in one program.
type Drop struct {
	Reason  string `json:"reason"`
	Program string `json:"program"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Meaning is one sentence on what the reason says and what to look at.
	Meaning string `json:"meaning"`
}

// PodName names an endpoint to people: its pod, or else its container, or else its device.
func (e Endpoint) PodName() string {
	switch {
	case e.Pod.Name != "":
		return e.Pod.Namespace + "/" + e.Pod.Name
	case e.ContainerID != "":
		return e.ContainerID
	}
	return e.HostDevice
}
