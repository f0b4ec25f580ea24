package agentapi

import (
	"net/netip"
	"time"
)

// FlowFilter says which flows are asked for. What is empty leaves none out. An end is a pod or a Service as namespace/name, all
// of a namespace as namespace/, the name alone of a pod, Service or node, an address, or a prefix of addresses.
type FlowFilter struct {
	// Pod is an end on either side, From that of who opened the session or sent the packet, To the other one.
	Pod  string `json:"pod,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Verdict is one of FlowVerdicts.
	Verdict string `json:"verdict,omitempty"`
	// Protocol is a name as in Flow, upper or lower case, or a number.
	Protocol string `json:"protocol,omitempty"`
	// Port is that of the destination.
	Port uint16 `json:"port,omitempty"`
	// Reason is that of a drop.
	Reason string `json:"reason,omitempty"`
	// Since leaves out what is older.
	Since time.Time `json:"since,omitzero"`
	// Last is how many of those that fit are wanted, the newest; 0 is all that are kept.
	Last int `json:"last,omitempty"`
	// New leaves out all that are kept: who follows gets only what comes.
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
	FlowEventOpened   = "opened"   // the first packet of a session was allowed, and no answer has come yet
	FlowEventAnswered = "answered" // the first answer has come
	FlowEventClosed   = "closed"   // the session is over; the counts are its totals
	FlowEventDropped  = "dropped"  // a packet was dropped; the counts are those of its kind since the last event about them
	FlowEventRevoked  = "revoked"  // the session is no longer allowed; the counts are its totals
)

// Flow is one event about a session or a drop.
type Flow struct {
	// Time is when it happened; of a session that is answered when it is told of first, when that was: the agent has asked, or the session has left its
	// place among the young. Flows are in the order in which they were told; that a session was opened may be told a tenth of a second later.
	Time time.Time `json:"time"`
	// Opened is when the session began, to the tick of the kernel's clock (1 to 10 ms); missing for a drop. It differs by some microseconds between events
	// of one session.
	Opened time.Time `json:"opened,omitzero"`
	// First says that this is the first event about its session; no event says so if that one was lost. A session of TCP that is over before the agent asks,
	// ten times a second, has no other.
	First bool `json:"first,omitempty"`
	// Event is one of the events above, Verdict one of FlowVerdicts.
	Event   string `json:"event"`
	Verdict string `json:"verdict"`
	// Protocol is TCP, UDP, SCTP, ICMP, ICMPv6 or the number in the IP header; empty if that could not be read.
	Protocol string `json:"protocol,omitempty"`
	// Source opened the session, or sent the packet that was dropped.
	Source      FlowEnd `json:"source"`
	Destination FlowEnd `json:"destination"`
	// EgressPolicy and IngressPolicy are the NetworkPolicies that have allowed the session, as namespace/name. Empty means that the
	// pod is not isolated in that direction or is not on this node.
	EgressPolicy  string `json:"egressPolicy,omitempty"`
	IngressPolicy string `json:"ingressPolicy,omitempty"`
	// Reason of a drop, and one sentence on what it says and what to look at.
	Reason  string `json:"reason,omitempty"`
	Meaning string `json:"meaning,omitempty"`
	// Program has seen the packet, at the device with index Device, which is DevicePod's (namespace/name) if that is a pod's. They are missing, as
	// TCPFlags are, where no packet has made the event.
	Program   string `json:"program,omitempty"`
	Device    int    `json:"device,omitempty"`
	DevicePod string `json:"devicePod,omitempty"`
	// TCPFlags are the names of those of the packet.
	TCPFlags []string `json:"tcpFlags,omitempty"`
	// PushedOut says of a session that is closed that nobody has seen its end: the table of sessions was full, and what was least used gave
	// way. The counts are those of when it was last looked at, up to half a minute before.
	PushedOut bool `json:"pushedOut,omitempty"`
	// Packets and Bytes are those from Source, the others those from Destination. Bytes are with the link-layer header.
	Packets       uint64 `json:"packets"`
	Bytes         uint64 `json:"bytes"`
	AnswerPackets uint64 `json:"answerPackets,omitempty"`
	AnswerBytes   uint64 `json:"answerBytes,omitempty"`
}

// The kinds of ends.
const (
	FlowEndPod     = "pod"
	FlowEndNode    = "node"
	FlowEndService = "service"
)

// FlowEnd is one end of a flow.
type FlowEnd struct {
	// Address is missing if it could not be read. Port is 0 where a protocol has none; for ICMP echo, that of who asks is the identifier.
	Address netip.Addr `json:"address,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	// Kind is one of the kinds above, with the name of what has the address; empty for addresses that nobody in the cluster has.
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Node is where a pod runs.
	Node string `json:"node,omitempty"`
	// Services have address and port as an endpoint, as namespace/name: the client may have asked for one of them.
	Services []string `json:"services,omitempty"`
	// Identity is the number by which policies know the address; 0 where they were not asked.
	Identity uint32 `json:"identity,omitempty"`
}

// FlowLoss counts events that were not told.
type FlowLoss struct {
	Event string `json:"event"`
	// Why is a word for metrics, Meaning a sentence for people.
	Why     string `json:"why"`
	Meaning string `json:"meaning"`
	// Events counts them since the tables of the datapath were made; those that are untracked since the agent has started.
	Events uint64 `json:"events"`
}

// FlowList is what is kept of flows.
type FlowList struct {
	// Telling is what flows tell of on this node: the agent's --flows.
	Telling string `json:"telling"`
	Flows   []Flow `json:"flows"`
	// Kept is how many events there are that a filter may choose from, and Oldest the time of the first one.
	Kept   int        `json:"kept"`
	Oldest time.Time  `json:"oldest,omitzero"`
	Losses []FlowLoss `json:"losses,omitempty"`
}

// FlowLine is one line of a stream of flows. One of its fields is set.
type FlowLine struct {
	Flow *Flow `json:"flow,omitempty"`
	// Missed is how many events went by before this one could be sent, because the client was too slow; the filter has not
	// looked at them.
	Missed uint64 `json:"missed,omitempty"`
	// Lost is what could not be told, of one kind and for one cause. Its Events are those since the stream began, or since its last line
	// about the same; the filter has not looked at them.
	Lost *FlowLoss `json:"lost,omitempty"`
}
