// Package flow turns what the datapath tells of sessions and drops into records with names, keeps the last of them, and
// hands them to those who watch. It is pure: events and snapshots of the cluster go in.
package flow

import (
	"net/netip"
	"time"

	"github.com/beeline-cni/beeline/internal/policy"
)

// Kind is what an event tells.
type Kind uint8

// The kinds; they are enum flow_kind of bpf/types_policy.h.
const (
	// Opened is the beginning of a session: its first packet was allowed, and none of the other direction has come yet.
	Opened Kind = 0
	// Answered is the first packet of the other direction.
	Answered Kind = 1
	// Closed is the end of a session, with its totals: TCP has ended it, it has timed out, or was pushed out of the table.
	Closed Kind = 2
	// Dropped is a packet that was dropped, for whatever reason.
	Dropped Kind = 3
	// Revoked is the end of a session that is no longer allowed, with its totals.
	Revoked Kind = 4
)

// Kinds are all kinds, in the order of their numbers.
var Kinds = []Kind{Opened, Answered, Closed, Dropped, Revoked}

var kindNames = [...]string{Opened: "opened", Answered: "answered", Closed: "closed", Dropped: "dropped", Revoked: "revoked"}

// String gives the name that people and metrics see.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Verdict is what was decided about the packets of an event.
type Verdict string

// The verdicts.
const (
	VerdictAllowed Verdict = "allowed"
	VerdictDropped Verdict = "dropped"
)

// Verdict gives what was decided about the packets that an event of this kind tells of.
func (k Kind) Verdict() Verdict {
	if k == Dropped || k == Revoked {
		return VerdictDropped
	}
	return VerdictAllowed
}

// Event is what the datapath tells, by addresses and numbers.
type Event struct {
	// Time is when it happened; of the first event about a session, if that is Answered, when it was told of.
	Time time.Time
	Kind Kind
	// First says that no event has told of the session before.
	First bool
	// Opened is when the session has begun, to the tick of the kernel's clock; zero of a drop.
	Opened time.Time
	// Protocol is an IP protocol number; 0, with zero addresses, if the packet could not be read.
	Protocol uint8
	// TCPFlags are those of the packet that made the event, as in its header.
	TCPFlags uint8
	// Source opened the session, or sent the packet that was dropped. For ICMP echo, the port is its identifier.
	Source, Destination netip.AddrPort
	// SourceIdentity and DestinationIdentity are IdentityUnknown also where nobody asked.
	SourceIdentity, DestinationIdentity policy.Identity
	// Packets and Bytes count those of the opener, at 0, and those of the answers. Of a drop they count, at 0, the packets of its
	// kind since an event last told of them. Bytes are with the link-layer header.
	Packets, Bytes [2]uint64
	// PushedOut says of a session that is Closed that nobody has seen its end: the table was full, and what was least used gave way. It may
	// have gone on, as another session. The counts are those of when it was last looked at.
	PushedOut bool
	// Ingress and Egress are what has allowed a session; 0 where no policy had to.
	Ingress, Egress policy.Policy
	// Reason of a drop, with one sentence on what it says and what to look at.
	Reason, Meaning string
	// Program is the one that has seen the packet; empty where no packet has made the event: of sessions that were told of when the
	// datapath was asked, that have timed out or were pushed out.
	Program string
	// Device is the index of the one where the program is, 0 if there is none.
	Device int
}

// Loss counts events that were not told, and never will be.
type Loss struct {
	Kind Kind
	// Why is a word for metrics, Meaning a sentence for people.
	Why, Meaning string
	Events       uint64
}
