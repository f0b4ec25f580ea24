package datapath

import (
	"cmp"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// entry is one direction of a connection.
type entry struct {
	key     bpfTuple
	value   bpfNatEntry
	opening bool // in `openings`
}

func (e entry) flag(f bpfNatFlag) bool { return bpfNatFlag(e.value.Flags)&f != 0 }

func (e entry) opener() bool { return e.flag(bpfNatFlagNAT_INITIATOR) }

// direct tells whether the connection has no other direction here.
func (e entry) direct() bool { return e.flag(bpfNatFlagNAT_DSR) }

func (e entry) seen() time.Duration { return time.Duration(e.value.Seen) }

// turned is the key of the other direction.
func (e entry) turned() bpfTuple {
	v := e.value
	return bpfTuple{
		Source: v.Destination, Destination: v.Source, SourcePort: v.DestinationPort, DestinationPort: v.SourcePort,
		Protocol: e.key.Protocol,
	}
}

// slots is in how many calls of Expire every entry is inspected once.
const slots = 64

// slot says in which of them an entry is.
func (e entry) slot() uint32 {
	k := e.key
	n := k.Source.Word[3] ^ k.Destination.Word[3] ^ uint32(k.SourcePort)<<16 ^ uint32(k.DestinationPort)
	return (n ^ n>>8 ^ n>>16 ^ n>>24) % slots
}

// ConnectionState is how far a connection is.
type ConnectionState string

// The states. Only TCP and SCTP can be closing or closed.
const (
	ConnectionOpening     ConnectionState = "opening"
	ConnectionEstablished ConnectionState = "established"
	// ConnectionClosing has seen FIN or RST, or what SCTP has for them, in one direction, ConnectionClosed in both.
	ConnectionClosing ConnectionState = "closing"
	ConnectionClosed  ConnectionState = "closed"
)

const (
	flagFIN    = uint8(bpfNatFlagNAT_FIN)
	flagReset  = uint8(bpfNatFlagNAT_RESET)
	flagsEnded = flagFIN | flagReset
)

// closing tells whether one direction has ended its side. RST is anybody's who guesses addresses and ports (RFC 5961): where the
// other end goes on, it has not believed it.
func closing(one, other bpfNatEntry) bool {
	return one.Flags&flagFIN != 0 || one.Flags&flagReset != 0 && other.Seen <= one.Seen
}

// ends tells whether the ends of a protocol's connections tell each other, and whoever is between them, that one is over.
func ends(protocol uint8) bool {
	return protocol == uint8(cluster.TCP) || protocol == uint8(cluster.SCTP)
}

// state is what both directions make up; back is zero where there is no other one.
func (e entry) state(back bpfNatEntry) ConnectionState {
	if ends(e.key.Protocol) {
		reset := (e.value.Flags|back.Flags)&flagReset != 0
		switch {
		case e.value.Flags&flagsEnded != 0 && back.Flags&flagsEnded != 0, reset && e.opening:
			return ConnectionClosed
		case closing(e.value, back), closing(back, e.value):
			return ConnectionClosing
		}
	}
	// A direct one stays among the openings, since nothing here tells that it is answered; who goes on sending shows it.
	if e.opening && (!e.direct() || e.value.Packets < 2) {
		return ConnectionOpening
	}
	return ConnectionEstablished
}

// resting is how long the port of a connection that its server has ended is given to nobody else, unless `connections` is crowded.
const resting = time.Duration(bpfTimeoutTIMEOUT_TCP_TIME_WAIT) * time.Second

// shortest is the shortest of the timeouts: whatever had a packet since is not over.
const shortest = time.Duration(bpfTimeoutTIMEOUT_TCP_CLOSED) * time.Second

// lasts is how long a translated connection in a state, which both directions make up, lasts without a packet: as long as with Linux'
// connection tracking, but for TCP that is established or closing (RFC 5382). nat_expired of the datapath says the same.
func (e entry) lasts(state ConnectionState, back bpfNatEntry) time.Duration {
	var seconds bpfTimeout
	switch protocol := cluster.Protocol(e.key.Protocol); {
	case state == ConnectionClosed:
		seconds = bpfTimeoutTIMEOUT_TCP_CLOSED
	case state == ConnectionClosing:
		seconds = bpfTimeoutTIMEOUT_TCP_CLOSING
	case ends(e.key.Protocol) && state == ConnectionEstablished:
		seconds = bpfTimeoutTIMEOUT_TCP
	case ends(e.key.Protocol) && e.replied(back):
		seconds = bpfTimeoutTIMEOUT_NAT_SYN_RECV
	case ends(e.key.Protocol):
		seconds = bpfTimeoutTIMEOUT_NAT_SYN_SENT
	case protocol == cluster.ICMP || protocol == cluster.ICMPv6:
		seconds = bpfTimeoutTIMEOUT_NAT_ICMP
	case e.stream(back):
		seconds = bpfTimeoutTIMEOUT_NAT_UDP_STREAM
	default:
		seconds = bpfTimeoutTIMEOUT_NAT_UDP
	}
	return time.Duration(seconds) * time.Second
}

// replied tells whether an opening has had a packet of the end that did not open it.
func (e entry) replied(back bpfNatEntry) bool {
	if e.opener() {
		return back.Packets > 0
	}
	return e.value.Packets > 0
}

// stream tells whether packets go in both directions for longer than a question and its answer do.
func (e entry) stream(back bpfNatEntry) bool {
	const stream = uint8(bpfNatFlagNAT_STREAM)
	return e.value.Flags&stream != 0 && (e.direct() || back.Flags&stream != 0)
}

// lasting is how long a session in a state lasts without a packet.
func lasting(protocol uint8, state ConnectionState) time.Duration {
	seconds := bpfTimeoutTIMEOUT_UDP
	switch {
	case state == ConnectionClosed:
		seconds = bpfTimeoutTIMEOUT_TCP_CLOSED
	case state == ConnectionOpening:
		seconds = bpfTimeoutTIMEOUT_UNREPLIED
	case state == ConnectionClosing:
		seconds = bpfTimeoutTIMEOUT_TCP_CLOSING
	case ends(protocol):
		seconds = bpfTimeoutTIMEOUT_TCP
	case cluster.Protocol(protocol) == cluster.ICMP || cluster.Protocol(protocol) == cluster.ICMPv6:
		seconds = bpfTimeoutTIMEOUT_ICMP
	}
	return time.Duration(seconds) * time.Second
}

// ConnectionKind is what a connection is translated for.
type ConnectionKind string

// The kinds.
const (
	ConnectionService    ConnectionKind = "service"
	ConnectionMasquerade ConnectionKind = "masquerade"
	// ConnectionDirect is a Service's too, but its answers do not come through this node.
	ConnectionDirect ConnectionKind = "direct"
	// ConnectionPlain is not translated: it is known so that its answers are not.
	ConnectionPlain ConnectionKind = "plain"
)

func (e entry) kind() ConnectionKind {
	switch {
	case e.flag(bpfNatFlagNAT_DSR):
		return ConnectionDirect
	case e.flag(bpfNatFlagNAT_UNCHANGED):
		return ConnectionPlain
	case e.value.Service != 0:
		return ConnectionService
	}
	return ConnectionMasquerade
}

// ConnectionCount counts connections that are alike.
type ConnectionCount struct {
	Kind ConnectionKind
	// Protocol is an IP protocol number.
	Protocol uint8
	// State is what the direction of the opener shows.
	State ConnectionState
	// Connections counts each once, not by its directions.
	Connections int
}

// tally counts connections by everything but their number.
type tally map[ConnectionCount]int

// add counts a connection at its opener.
func (t tally) add(e entry) {
	if e.opener() || e.direct() {
		t[ConnectionCount{Kind: e.kind(), Protocol: e.key.Protocol, State: e.state(bpfNatEntry{})}]++
	}
}

func (t tally) sorted() []ConnectionCount {
	var all []ConnectionCount
	for c, n := range t {
		c.Connections = n
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b ConnectionCount) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.State, b.State))
	})
	return all
}

// Counts gives the connections that the last Expire found, also those that it removed. It reads no table.
func (c *Connections) Counts() []ConnectionCount {
	c.countsMu.Lock()
	defer c.countsMu.Unlock()
	return slices.Clone(c.counts)
}
