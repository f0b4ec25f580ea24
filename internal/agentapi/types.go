// Package agentapi is the API that the agent serves on its unix socket: types and client. Package server mounts it.
// It imports neither cilium/ebpf nor a Kubernetes package, so that the CNI plugin stays small.
package agentapi

import (
	"net/netip"
	"strings"
	"time"
)

// DefaultSocket is the default path of the agent's socket.
const DefaultSocket = "/run/beeline/agent.sock"

// PodRef names the pod of an endpoint. All fields may be empty: outside Kubernetes a container has no pod.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// MadeByServer reports whether a pod was created at an API server, which lists it as long as it exists, and gave it a UUID.
// The UID of a static pod is a checksum, digits only, unless its manifest sets one, and its mirror pod may be rejected.
func (p PodRef) MadeByServer() bool { return strings.Count(p.UID, "-") == 4 }

// Attachment identifies one interface of one container, as the CNI specification does.
type Attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
}

// PrepareRequest asks which device to make for a pod, before the plugin makes it.
type PrepareRequest struct {
	Attachment
	Pod PodRef `json:"pod"`
	// Device is the kind of device that the network configuration requests; empty leaves it to the agent.
	Device string `json:"device,omitempty"`
	// IPPool names the IPPools of the network configuration; empty leaves it to the pod.
	IPPool string `json:"ipPool,omitempty"`
}

// Preparation is what the plugin needs to know to make the device of a pod.
type Preparation struct {
	// Device is the kind of the device: "veth", "netkit" or "macvlan".
	Device string `json:"device"`
	// Parent is the index of the parent of a macvlan device.
	Parent int `json:"parent,omitempty"`
}

// AddRequest requests an endpoint for an existing pod device: the plugin has created the pair and moved one end into
// the pod. An endpoint exists exactly as long as its host device.
type AddRequest struct {
	// Endpoint is what the plugin knows of it. If ThroughStack is not empty, the pod's packets pass the kernel stack, with
	// eBPF routing too; else the agent's routing decides. An agent that does not translate PortMappings leaves them to the
	// next plugin of the chain, and the pod's packets to the kernel stack, unless Direct says that the network's pods never
	// use it.
	Endpoint
	Direct bool `json:"direct,omitempty"`
	// IPPool is that of the PrepareRequest.
	IPPool string `json:"ipPool,omitempty"`
}

// Protocols are the transport protocols, as in Kubernetes.
var Protocols = []string{"TCP", "UDP", "SCTP"}

// PortMapping is a port of the node that leads to a port of a pod (hostPort).
type PortMapping struct {
	HostPort      uint16 `json:"hostPort"`
	ContainerPort uint16 `json:"containerPort"`
	// Protocol is one of Protocols.
	Protocol string `json:"protocol"`
	// HostIP is the address of the node with the port; none, 0.0.0.0 or :: means all (of a family).
	HostIP netip.Addr `json:"hostIP,omitzero"`
}

// DeleteRequest requests the removal of an endpoint with its host device.
type DeleteRequest struct {
	Attachment
	// HostIfIndex is the index of the device to remove. When a late request is handled, after its client has given
	// up, the container may have a new device of the same name. NoDevice means none, 0 any device with the name.
	HostIfIndex int `json:"hostIfIndex,omitempty"`
}

// NoDevice is the HostIfIndex of a container without a device: only its endpoint is removed.
const NoDevice = -1

// StateReady is the State of an endpoint without problems.
const StateReady = "ready"

// Endpoint is one pod interface in the agent's state.
type Endpoint struct {
	Attachment
	// Network is the name of the CNI network, for GC: a runtime lists the valid attachments of one network.
	Network     string `json:"network"`
	Pod         PodRef `json:"pod"`
	Netns       string `json:"netns"`
	HostDevice  string `json:"hostDevice"`
	HostIfIndex int    `json:"hostIfIndex"`
	// Device is the kind of the pod's device: "veth", "netkit" or "macvlan".
	Device string `json:"device,omitempty"`
	// Macvlan is what else a macvlan device has.
	Macvlan *Macvlan `json:"macvlan,omitempty"`
	// HostMAC and PodMAC are the link-layer addresses of the two ends, in colon notation.
	HostMAC string `json:"hostMAC"`
	PodMAC  string `json:"podMAC"`
	// Addresses are at most one of each family.
	Addresses []netip.Addr `json:"addresses"`
	// Pool is the IPPool of the addresses; empty for those of the node's range. StatefulSet keeps them.
	Pool        string `json:"pool,omitempty"`
	StatefulSet string `json:"statefulSet,omitempty"`
	// Networks are those of the IPPool: a second interface of the pod leads to them.
	Networks []netip.Prefix `json:"networks,omitempty"`
	// MTU of the pod's device, in bytes, without the link-layer header.
	MTU int `json:"mtu"`
	// Namespace is the kernel's id of the pod's network namespace in the host's, plus 1: the datapath finds the pod's
	// sockets by it. 0 if unknown.
	Namespace int `json:"namespace,omitempty"`
	// ThroughStack says in a few words why the pod's packets pass the kernel stack, such as "port mapping". It is
	// empty when they bypass it.
	ThroughStack string `json:"throughStack,omitempty"`
	// Bandwidth limits the pod.
	Bandwidth Bandwidth `json:"bandwidth,omitzero"`
	// Added is when the endpoint was made; missing if its file was lost.
	Added time.Time `json:"added,omitzero"`
	// PortMappings are the host ports that the agent translates to the pod.
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	// State is StateReady, or a sentence on what is wrong.
	State string `json:"state"`
}

// Bandwidth limits a pod. In bit/s, with link-layer headers; 0 is no limit.
type Bandwidth struct {
	// Egress is what the pod sends, Ingress what it receives.
	Egress  uint64 `json:"egress,omitempty"`
	Ingress uint64 `json:"ingress,omitempty"`
}

// Macvlan is what the node knows of a pod's macvlan device.
type Macvlan struct {
	// Parent is the index of the device of the node that it is on.
	Parent int `json:"parent"`
	// NetnsCookie is that of the pod's network namespace (SO_NETNS_COOKIE), the only one that may send with the device's MAC.
	NetnsCookie uint64 `json:"netnsCookie"`
	// Routes are those of the pod by the device, in the order in which the kernel takes them. A family without a default route there has
	// the node as its router.
	Routes []PodRoute `json:"routes,omitempty"`
}

// PodRoute is a route of a pod.
type PodRoute struct {
	To netip.Prefix `json:"to"`
	// Via is a router; missing for hosts on the link.
	Via netip.Addr `json:"via,omitzero"`
}

// GCRequest lists the valid attachments of a network; every other endpoint of that network is removed. Endpoints of
// other networks are not affected.
type GCRequest struct {
	Network string       `json:"network"`
	Valid   []Attachment `json:"valid"`
}

// Feature is an optional capability of the kernel, probed at the agent's start.
type Feature struct {
	Name    string `json:"name"`
	Present bool   `json:"present"`
	// Gives says what the feature is used for, Needs which kernel version or option provides it, Instead what Beeline
	// does without it.
	Gives   string `json:"gives"`
	Needs   string `json:"needs,omitempty"`
	Instead string `json:"instead,omitempty"`
}

// Program is a loaded BPF program. RunCount and RunTime are zero unless kernel.bpf_stats_enabled is set.
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

// Map is a BPF map with its memory as charged by the kernel.
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
	// Free is at most math.MaxInt64.
	Free int64 `json:"free"`
}

// Choice is an active setting: the requested value, the selected value, and the reason.
type Choice struct {
	Name      string `json:"name"`
	Requested string `json:"requested"`
	Selected  string `json:"selected"`
	Reason    string `json:"reason"`
}

// Uplink is the device that carries traffic to other nodes.
type Uplink struct {
	Name      string         `json:"name"`
	MAC       string         `json:"mac"`
	MTU       int            `json:"mtu"`
	Addresses []netip.Prefix `json:"addresses"`
}

// The paths to another node.
const (
	// NodePathDirect is the link of both nodes.
	NodePathDirect = "direct"
	// NodePathVXLAN is a tunnel.
	NodePathVXLAN = "vxlan"
	// NodePathWireGuard and NodePathIPsec are encrypted tunnels. NodePathPending says that packets have to be encrypted, and cannot be yet.
	NodePathWireGuard = "wireguard"
	NodePathIPsec     = "ipsec"
	NodePathPending   = "encryption pending"
	// NodePathRouted are the routers between the nodes, which must have routes to the pod ranges.
	NodePathRouted = "routed"
)

// RemoteNode is another node of the cluster and the path to it.
type RemoteNode struct {
	Name      string         `json:"name"`
	Addresses []netip.Addr   `json:"addresses"`
	PodCIDRs  []netip.Prefix `json:"podCIDRs"`
	// Path leads to its pods: one of the constants above, or two of them, comma-separated.
	Path string `json:"path"`
	// MTU of the path in bytes, the smaller of two; 0 where the kernel stack determines it.
	MTU int `json:"mtu,omitempty"`
	// MAC is empty while the neighbour is unresolved; the kernel then resolves it packet by packet.
	MAC string `json:"mac,omitempty"`
	// Encryption is nil where packets to the node are not encrypted.
	Encryption *NodeEncryption `json:"encryption,omitempty"`
}

// NodeEncryption is another node as a peer of WireGuard or IPsec.
type NodeEncryption struct {
	// Pending says why packets to the node are dropped, which have to be encrypted; empty if they are encrypted.
	Pending string `json:"pending,omitempty"`
	// PublicKey is the node's key of WireGuard in base64; empty without a usable one.
	PublicKey string `json:"publicKey,omitempty"`
	// KeyGeneration is that of the cluster's key of IPsec by which packets to the node are encrypted; 0 without.
	KeyGeneration uint32 `json:"keyGeneration,omitempty"`
	// Endpoint is where encrypted packets to it are sent.
	Endpoint string `json:"endpoint,omitempty"`
	// LastHandshake of WireGuard is in RFC 3339; empty before the first one. While packets are sent there is one in two minutes.
	LastHandshake string `json:"lastHandshake,omitempty"`
	// ReceivedBytes and SentBytes are those of encrypted packets, since the peer was added. With IPsec they are those of the
	// packets inside, with all keys that the node has.
	ReceivedBytes int64 `json:"receivedBytes"`
	SentBytes     int64 `json:"sentBytes"`
	// SentPackets is the last sequence number of IPsec; RejectedPackets were not authentic, or had arrived before.
	SentPackets     uint64 `json:"sentPackets,omitempty"`
	RejectedPackets uint64 `json:"rejectedPackets,omitempty"`
}

// Cluster is the source of the cluster's state, with counts of its objects.
type Cluster struct {
	// From names the source: an API server or a directory.
	From string `json:"from"`
	// Reachable says that the source responds; Outages is how often it stopped responding since the agent started.
	Reachable bool           `json:"reachable"`
	Outages   int            `json:"outages"`
	Objects   []ClusterCount `json:"objects"`
}

// ClusterCount is the number of objects of one kind.
type ClusterCount struct {
	Kind  string `json:"kind"`
	Count int    `json:"count"`
	// Synced says that the source has listed the kind.
	Synced bool `json:"synced"`
}

// Translation is what this node translates: connections to Services, and packets from pods to external addresses.
type Translation struct {
	// Ports counts ports of Services, Frontends their addresses on this node.
	Ports     int `json:"ports"`
	Frontends int `json:"frontends"`
	// Connections are the NAT entries, as of the last count.
	Connections []ConnectionCount `json:"connections,omitempty"`
	// Expired counts removed NAT and conntrack entries since the agent started, Destroyed destroyed sockets of
	// removed backends.
	Expired   uint64 `json:"expired"`
	Destroyed uint64 `json:"destroyedSockets"`
}

// ConnectionCount counts connections of one kind, protocol and state.
type ConnectionCount struct {
	// Kind is service, masquerade, direct (DSR) or plain (tracked, and not translated).
	Kind     string `json:"kind"`
	Protocol string `json:"protocol"`
	State    string `json:"state"`
	Count    int    `json:"count"`
}

// Status is the content of `beeline status`.
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
	// Uplinks are all external devices, that to the other nodes first.
	Uplinks     []Uplink     `json:"uplinks,omitempty"`
	Translation Translation  `json:"translation"`
	Policy      PolicyStatus `json:"policy"`
	Features    []Feature    `json:"features"`
	Programs    []Program    `json:"programs"`
	Maps        []Map        `json:"maps"`
	Pools       []Pool       `json:"pools"`
	Nodes       []RemoteNode `json:"nodes"`
	// Annotations of this node's Node are what other nodes need to encrypt to it. The agent writes them where there is an API server.
	Annotations map[string]string `json:"annotations,omitempty"`
	Endpoints   int               `json:"endpoints"`
}

// Drop is one counter: packets dropped for one reason in one program.
type Drop struct {
	Reason  string `json:"reason"`
	Program string `json:"program"`
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Meaning is one sentence on the meaning of the reason and what to look at.
	Meaning string `json:"meaning"`
}

// PodName names an endpoint for people: its pod, or else its container, or else its device.
func (e Endpoint) PodName() string {
	switch {
	case e.Pod.Name != "":
		return e.Pod.Namespace + "/" + e.Pod.Name
	case e.ContainerID != "":
		return e.ContainerID
	}
	return e.HostDevice
}
