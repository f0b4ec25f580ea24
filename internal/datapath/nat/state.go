package nat

import (
	"cmp"
	"slices"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
)

// entry is a NAT entry: one direction of a connection.
type entry struct {
	key     bpf.Tuple
	value   bpf.NatEntry
	pending bool // in `nat_pending`
}

func (e entry) flag(f bpf.NatFlag) bool { return bpf.NatFlag(e.value.Flags)&f != 0 }

func (e entry) initiator() bool { return e.flag(bpf.NatFlagNAT_INITIATOR) }

// dsr reports whether the connection has no reverse entry on this node.
func (e entry) dsr() bool { return e.flag(bpf.NatFlagNAT_DSR) }

// addresses are those before and after translation.
func (e entry) addresses() []bpf.Address {
	return []bpf.Address{e.key.Source, e.key.Destination, e.value.Source, e.value.Destination}
}

func (e entry) seen() time.Duration { return time.Duration(e.value.Seen) }

// reversed returns the key of the reverse direction.
func (e entry) reversed() bpf.Tuple {
	v := e.value
	return bpf.Tuple{
		Source: v.Destination, Destination: v.Source, SourcePort: v.DestinationPort, DestinationPort: v.SourcePort,
		Protocol: e.key.Protocol,
	}
}

// slots is the number of calls of Expire that inspect every entry once.
const slots = 64

// slot returns the call that inspects an entry.
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

// closing reports whether one direction has closed. Anyone who guesses addresses and ports can send an RST (RFC
// 5961): if the other end continues, it did not accept it.
func closing(one, other bpf.NatEntry) bool {
	return one.Flags&flagFIN != 0 || one.Flags&flagReset != 0 && other.Seen <= one.Seen
}

// state is the common state of both directions; back is zero without a reverse entry.
func (e entry) state(back bpf.NatEntry) conntrack.State {
	if conntrack.HasEnd(e.key.Protocol) {
		reset := (e.value.Flags|back.Flags)&flagReset != 0
		switch {
		case e.value.Flags&flagsEnded != 0 && back.Flags&flagsEnded != 0, reset && e.pending:
			return conntrack.StateClosed
		case closing(e.value, back), closing(back, e.value):
			return conntrack.StateClosing
		}
	}
	// A DSR entry stays pending, since this node sees no reply; continued packets show that it is established.
	if e.pending && (!e.dsr() || e.value.Packets < 2) {
		return conntrack.StateNew
	}
	return conntrack.StateEstablished
}

// timeWait is how long the port of a connection that its server closed is not reused, unless `nat` is crowded.
const timeWait = time.Duration(bpf.TimeoutTIMEOUT_TCP_TIME_WAIT) * time.Second

// shortest is the shortest timeout: an entry with a later packet has not expired.
const shortest = time.Duration(bpf.TimeoutTIMEOUT_TCP_CLOSED) * time.Second

// timeout is that of a connection without packets, by its state: as in Linux conntrack, except for established or
// closing TCP (RFC 5382). nat_expired in the datapath uses the same values.
func (e entry) timeout(state conntrack.State, back bpf.NatEntry) time.Duration {
	var seconds bpf.Timeout
	switch protocol := cluster.Protocol(e.key.Protocol); {
	case state == conntrack.StateClosed:
		seconds = bpf.TimeoutTIMEOUT_TCP_CLOSED
	case state == conntrack.StateClosing:
		seconds = bpf.TimeoutTIMEOUT_TCP_CLOSING
	case conntrack.HasEnd(e.key.Protocol) && state == conntrack.StateEstablished:
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

// replied reports whether the responder of a pending connection has sent a packet.
func (e entry) replied(back bpf.NatEntry) bool {
	if e.initiator() {
		return back.Packets > 0
	}
	return e.value.Packets > 0
}

// stream reports whether packets go in both directions for longer than a request and its reply.
func (e entry) stream(back bpf.NatEntry) bool {
	const stream = uint8(bpf.NatFlagNAT_STREAM)
	return e.value.Flags&stream != 0 && (e.dsr() || back.Flags&stream != 0)
}

// Kind is the reason of the NAT entry.
type Kind string

const (
	KindService    Kind = "service"
	KindMasquerade Kind = "masquerade"
	// KindDSR is a Service's too, but its replies bypass this node.
	KindDSR Kind = "direct"
	// KindUnchanged is not translated: the entry keeps its replies from being translated.
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

// Count is a number of connections with the same properties.
type Count struct {
	Kind Kind
	// Protocol is an IP protocol number.
	Protocol uint8
	// State is that of the initiator's direction.
	State conntrack.State
	// Table counts each connection once, not per direction.
	Entries int
}

// tally maps the properties to their number.
type tally map[Count]int

// add counts a connection at its initiator's entry.
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

// Counts returns the connections that the last Expire found, including those it removed. It reads no map.
func (c *Table) Counts() []Count {
	c.countsMu.Lock()
	defer c.countsMu.Unlock()
	return slices.Clone(c.counts)
}
