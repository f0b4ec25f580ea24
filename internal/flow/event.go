// Package flow gives the datapath's flow events names, keeps the last records, and streams them to followers. It is
// pure: events and snapshots of the cluster go in.
package flow

import (
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/policy"
)

// Kind is the kind of an event.
type Kind uint8

// The kinds; they are enum flow_kind of bpf/types_policy.h.
const (
	// KindNew is the start of a connection: its first packet was allowed, and no reply has come yet.
	KindNew Kind = 0
	// KindReplied is the first reply packet.
	KindReplied Kind = 1
	// KindClosed is the end of a connection, with its totals: TCP closed it, it timed out, or it was evicted from the
	// table.
	KindClosed Kind = 2
	// KindDropped is a dropped packet.
	KindDropped Kind = 3
	// KindRevoked is the end of a connection that policy no longer allows, with its totals.
	KindRevoked Kind = 4
)

// Kinds are all kinds, in the order of their numbers.
var Kinds = []Kind{KindNew, KindReplied, KindClosed, KindDropped, KindRevoked}

var kindNames = [...]string{
	KindNew: agentapi.FlowEventNew, KindReplied: agentapi.FlowEventReplied, KindClosed: agentapi.FlowEventClosed,
	KindDropped: agentapi.FlowEventDropped, KindRevoked: agentapi.FlowEventRevoked,
}

// String gives the name for people and metrics.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Verdict gives the verdict on the packets of an event of this kind: one of agentapi.FlowVerdicts.
func (k Kind) Verdict() string {
	if k == KindDropped || k == KindRevoked {
		return agentapi.FlowDropped
	}
	return agentapi.FlowAllowed
}

// Event is an event of the datapath, with addresses and numbers.
type Event struct {
	// Time is when it happened. If the first event of a connection is KindReplied, it is when that was reported.
	Time time.Time
	Kind Kind
	// First says that this is the first event of the connection.
	First bool
	// Created is when the connection started, to the tick of the kernel's clock; zero for a drop.
	Created time.Time
	// Protocol is an IP protocol number; 0, with zero addresses, if the packet was not parsed.
	Protocol uint8
	// TCPFlags are those of the packet that caused the event.
	TCPFlags uint8
	// Source initiated the connection, or sent the dropped packet. For ICMP echo, the port is its identifier.
	Source, Destination netip.AddrPort
	// SourceIdentity and DestinationIdentity are IdentityUnknown also where no policy needed them.
	SourceIdentity, DestinationIdentity policy.Identity
	// Packets and Bytes count the original direction at 0 and replies at 1. For a drop, 0 has the packets of its kind
	// since the last reported event. Bytes include the link-layer header.
	Packets, Bytes [2]uint64
	// Evicted says that a closed connection was evicted as the least recently used, because the table was full. It
	// may have continued as another entry. The counts are the last ones read.
	Evicted bool
	// Ingress and Egress are the policies that allowed a connection; 0 where none applied.
	Ingress, Egress policy.Policy
	// Reason of a drop, with one sentence on its meaning and what to look at.
	Reason, Meaning string
	// Program saw the packet. It is empty where no packet caused the event: for connections that were reported on
	// request, timed out or were evicted.
	Program string
	// Device is the index of the program's device, 0 if there is none.
	Device int
}

// Loss counts events that were never reported.
type Loss struct {
	Kind Kind
	// Reason is a word for metrics, Meaning a sentence for people.
	Reason, Meaning string
	Events          uint64
}
