package agentapi

import (
	"net/netip"
	"time"
)

// InFlowFilter begins the message of an error in a FlowFilter; the name of the invalid field follows.
const InFlowFilter = "filter: "

// FlowFilter selects flows. An empty field matches all. An end is a pod or a Service as namespace/name, all of a
// namespace as namespace/, the name alone of a pod, Service or node, an address, or a prefix.
type FlowFilter struct {
	// Pod is an end on either side, From the initiator of the connection or the sender of the packet, To the other
	// end.
	Pod  string `json:"pod,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Verdict is one of FlowVerdicts.
	Verdict string `json:"verdict,omitempty"`
	// Protocol is a name as in Flow, upper or lower case, or a number.
	Protocol string `json:"protocol,omitempty"`
	// Port is the destination port.
	Port uint16 `json:"port,omitempty"`
	// Reason is a drop reason.
	Reason string `json:"reason,omitempty"`
	// Since excludes older flows.
	Since time.Time `json:"since,omitzero"`
	// Last limits the result to the newest matching flows; 0 means all buffered flows.
	Last int `json:"last,omitempty"`
	// New excludes all buffered flows: a follower gets only new ones.
	New bool `json:"new,omitempty"`
}

// The verdicts.
const (
	FlowAllowed = "allowed"
	FlowDropped = "dropped"
)

// FlowVerdicts are all verdicts.
var FlowVerdicts = []string{FlowAllowed, FlowDropped}

// The events.
const (
	FlowEventNew     = "new"     // the first packet of a connection was allowed, and there is no reply yet
	FlowEventReplied = "replied" // the first reply
	FlowEventClosed  = "closed"  // the connection has ended; the counts are its totals
	FlowEventDropped = "dropped" // a packet was dropped; the counts are those of its kind since the last such event
	FlowEventRevoked = "revoked" // the connection is no longer allowed; the counts are its totals
)

// Flow is one event of a connection or a drop.
type Flow struct {
	// Time is when it happened. If the first event of a connection is FlowEventReplied, it is when that was
	// reported: on the agent's request, or when the entry left ct_new. Flows are in the order of reports;
	// FlowEventNew may come a tenth of a second late.
	Time time.Time `json:"time"`
	// Created is when the connection started, to the tick of the kernel's clock (1 to 10 ms); missing for a drop. It
	// may differ by some microseconds between events of one connection.
	Created time.Time `json:"created,omitzero"`
	// First says that this is the first event of its connection; if that one was lost, no event says so. A TCP
	// connection that ends before the agent's next read, which is every 100 ms, has no other event.
	First bool `json:"first,omitempty"`
	// Event is one of the events above, Verdict one of FlowVerdicts.
	Event   string `json:"event"`
	Verdict string `json:"verdict"`
	// Protocol is TCP, UDP, SCTP, ICMP, ICMPv6 or the number in the IP header; empty if the packet was not parsed.
	Protocol string `json:"protocol,omitempty"`
	// Source initiated the connection, or sent the dropped packet.
	Source      FlowEnd `json:"source"`
	Destination FlowEnd `json:"destination"`
	// EgressPolicy and IngressPolicy are the NetworkPolicies that allowed the connection, as namespace/name. Empty
	// means that the pod is not isolated in that direction, or is not on this node.
	EgressPolicy  string `json:"egressPolicy,omitempty"`
	IngressPolicy string `json:"ingressPolicy,omitempty"`
	// Reason of a drop, with one sentence on its meaning and what to look at.
	Reason  string `json:"reason,omitempty"`
	Meaning string `json:"meaning,omitempty"`
	// Program saw the packet, at the device with index Device, which is that of DevicePod (namespace/name) if it is a
	// pod's. They are missing, like TCPFlags, where no packet caused the event.
	Program   string `json:"program,omitempty"`
	Device    int    `json:"device,omitempty"`
	DevicePod string `json:"devicePod,omitempty"`
	// TCPFlags are the names of the packet's flags.
	TCPFlags []string `json:"tcpFlags,omitempty"`
	// Evicted says that a closed connection was evicted as the least recently used, because the conntrack table was
	// full. The counts are the last ones read, up to half a minute old.
	Evicted bool `json:"evicted,omitempty"`
	// Packets and Bytes count packets from Source, the others packets from Destination. Bytes include the link-layer
	// header.
	Packets      uint64 `json:"packets"`
	Bytes        uint64 `json:"bytes"`
	ReplyPackets uint64 `json:"replyPackets,omitempty"`
	ReplyBytes   uint64 `json:"replyBytes,omitempty"`
}

// The kinds of ends.
const (
	FlowEndPod     = "pod"
	FlowEndNode    = "node"
	FlowEndService = "service"
)

// FlowEnd is one end of a flow.
type FlowEnd struct {
	// Address is missing if the packet was not parsed. Port is 0 for protocols without ports; for ICMP echo, the
	// initiator's is the identifier.
	Address netip.Addr `json:"address,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	// Kind is one of the kinds above, with the name of the owner of the address; empty for external addresses.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Node is the node of a pod.
	Node string `json:"node,omitempty"`
	// Services have the address and port as an endpoint, as namespace/name: the client may have connected to one of
	// them.
	Services []string `json:"services,omitempty"`
	// Identity is the identity of the address in policies; 0 where none was needed.
	Identity uint32 `json:"identity,omitempty"`
}

// FlowLoss counts events that were not reported.
type FlowLoss struct {
	Event string `json:"event"`
	// Reason is a word for metrics, Meaning a sentence for people.
	Reason  string `json:"reason"`
	Meaning string `json:"meaning"`
	// Events counts them since the tables of the datapath were created; untracked ones since the agent started.
	Events uint64 `json:"events"`
}

// FlowList are the buffered flows.
type FlowList struct {
	// Mode is what flows report on this node: the agent's --flows.
	Mode  string `json:"mode"`
	Flows []Flow `json:"flows"`
	// Buffered is the number of buffered events, before filtering, and Oldest the time of the first one.
	Buffered int        `json:"buffered"`
	Oldest   time.Time  `json:"oldest,omitzero"`
	Losses   []FlowLoss `json:"losses,omitempty"`
}

// FlowLine is one line of a stream of flows. Exactly one of its fields is set.
type FlowLine struct {
	Flow *Flow `json:"flow,omitempty"`
	// Missed is how many events were skipped before this one because the client was too slow; they were not filtered.
	Missed uint64 `json:"missed,omitempty"`
	// Lost are unreported events of one kind and cause. Its Events are those since the stream began, or since the
	// last such line; they were not filtered.
	Lost *FlowLoss `json:"lost,omitempty"`
}
