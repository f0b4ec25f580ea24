package nat

import (
	"cmp"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
)

// entry is one direction of a connection.
type entry struct {
	key     bpf.Tuple
	value   bpf.NatEntry
	pending bool // in `openings`
}

func (e entry) flag(f bpf.NatFlag) bool { return bpf.NatFlag(e.value.Flags)&f != 0 }

func (e entry) initiator() bool { return e.flag(bpf.NatFlagNAT_INITIATOR) }

// dsr tells whether the connection has no other direction here.
func (e entry) dsr() bool { return e.flag(bpf.NatFlagNAT_DSR) }

func (e entry) seen() time.Duration { return time.Duration(e.value.Seen) }

// reversed is the key of the other direction.
func (e entry) reversed() bpf.Tuple {
	v := e.value
	return bpf.Tuple{
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

const (
	flagFIN    = uint8(bpf.NatFlagNAT_FIN)
	flagReset  = uint8(bpf.NatFlagNAT_RESET)
	flagsEnded = flagFIN | flagReset
)

// closing tells whether one direction has ended its side. RST is anybody's who guesses addresses and ports (RFC 5961): where the
// other end goes on, it has not believed it.
func closing(one, other bpf.NatEntry) bool {
	return one.Flags&flagFIN != 0 || one.Flags&flagReset != 0 && other.Seen <= one.Seen
}

// state is what both directions make up; back is zero where there is no other one.
func (e entry) state(back bpf.NatEntry) conntrack.State {
	if conntrack.HasEnd(e.key.Protocol) {
		reset := (e.value.Flags|back.Flags)&flagReset != 0
		switch {
		case e.value.Flags&flagsEnded != 0 && back.Flags&flagsEnded != 0, reset && e.pending:
			return conntrack.Closed
		case closing(e.value, back), closing(back, e.value):
			return conntrack.Closing
		}
	}
	// A direct one stays among the openings, since nothing here tells that it is answered; who goes on sending shows it.
	if e.pending && (!e.dsr() || e.value.Packets < 2) {
		return conntrack.Opening
	}
	return conntrack.Established
}

// timeWait is how long the port of a connection that its server has ended is given to nobody else, unless `connections` is crowded.
const timeWait = time.Duration(bpf.TimeoutTIMEOUT_TCP_TIME_WAIT) * time.Second

// shortest is the shortest of the timeouts: whatever had a packet since is not over.
const shortest = time.Duration(bpf.TimeoutTIMEOUT_TCP_CLOSED) * time.Second

// timeout is how long a translated connection in a state, which both directions make up, lasts without a packet: as long as with Linux'
// connection tracking, but for TCP that is established or closing (RFC 5382). nat_expired of the datapath says the same.
func (e entry) timeout(state conntrack.State, back bpf.NatEntry) time.Duration {
	var seconds bpf.Timeout
	switch protocol := cluster.Protocol(e.key.Protocol); {
	case state == conntrack.Closed:
		seconds = bpf.TimeoutTIMEOUT_TCP_CLOSED
	case state == conntrack.Closing:
		seconds = bpf.TimeoutTIMEOUT_TCP_CLOSING
	case conntrack.HasEnd(e.key.Protocol) && state == conntrack.Established:
		seconds = bpf.TimeoutTIMEOUT_TCP
	case conntrack.HasEnd(e.key.Protocol) && e.replied(back):
		seconds = bpf.TimeoutTIMEOUT_NAT_SYN_RECV
	case conntrack.HasEnd(e.key.Protocol):
		seconds = bpf.TimeoutTIMEOUT_NAT_SYN_SENT
	case protocol == cluster.ICMP || protocol == cluster.ICMPv6:
		seconds = bpf.TimeoutTIMEOUT_NAT_ICMP
	case e.stream(back):
		seconds = bpf.TimeoutTIMEOUT_NAT_UDP_STREAM
	default:
		seconds = bpf.TimeoutTIMEOUT_NAT_UDP
	}
	return time.Duration(seconds) * time.Second
}

// replied tells whether an opening has had a packet of the end that did not open it.
func (e entry) replied(back bpf.NatEntry) bool {
	if e.initiator() {
		return back.Packets > 0
	}
	return e.value.Packets > 0
}

// stream tells whether packets go in both directions for longer than a question and its answer do.
func (e entry) stream(back bpf.NatEntry) bool {
	const stream = uint8(bpf.NatFlagNAT_STREAM)
	return e.value.Flags&stream != 0 && (e.dsr() || back.Flags&stream != 0)
}

// Kind is what a connection is translated for.
type Kind string

// The kinds.
const (
	KindService    Kind = "service"
	KindMasquerade Kind = "masquerade"
	// KindDSR is a Service's too, but its answers do not come through this node.
	KindDSR Kind = "direct"
	// KindUnchanged is not translated: it is known so that its answers are not.
	KindUnchanged Kind = "plain"
)

func (e entry) kind() Kind {
	switch {
	case e.flag(bpf.NatFlagNAT_DSR):
		return KindDSR
	case e.flag(bpf.NatFlagNAT_UNCHANGED):
		return KindUnchanged
	case e.value.Service != 0:
		return KindService
	}
	return KindMasquerade
}

// Count counts connections that are alike.
type Count struct {
	Kind Kind
	// Protocol is an IP protocol number.
	Protocol uint8
	// State is what the direction of the opener shows.
	State conntrack.State
	// Table counts each once, not by its directions.
	Entries int
}

// tally counts connections by everything but their number.
type tally map[Count]int

// add counts a connection at its opener.
func (t tally) add(e entry) {
	if e.initiator() || e.dsr() {
		t[Count{Kind: e.kind(), Protocol: e.key.Protocol, State: e.state(bpf.NatEntry{})}]++
	}
}

func (t tally) sorted() []Count {
	var all []Count
	for c, n := range t {
		c.Entries = n
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.State, b.State))
	})
	return all
}

// Counts gives the connections that the last Expire found, also those that it removed. It reads no table.
func (c *Table) Counts() []Count {
	c.countsMu.Lock()
	defer c.countsMu.Unlock()
	return slices.Clone(c.counts)
}
