package conntrack

import (
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// State is the state of a connection.
type State string

// The states. Only TCP and SCTP can be closing or closed.
const (
	StateNew         State = "new"
	StateEstablished State = "established"
	// StateClosing has seen FIN or RST, or the equivalent of SCTP, in one direction, StateClosed in both.
	StateClosing State = "closing"
	StateClosed  State = "closed"
)

// HasEnd reports whether packets of a protocol show the end of a connection.
func HasEnd(protocol uint8) bool {
	return protocol == uint8(cluster.TCP) || protocol == uint8(cluster.SCTP)
}

// Timeout is how long an entry in a state is kept without a packet.
func Timeout(protocol uint8, state State) time.Duration {
	seconds := bpf.TimeoutTIMEOUT_UDP
	switch {
	case state == StateClosed:
		seconds = bpf.TimeoutTIMEOUT_TCP_CLOSED
	case state == StateNew:
		seconds = bpf.TimeoutTIMEOUT_UNREPLIED
	case state == StateClosing:
		seconds = bpf.TimeoutTIMEOUT_TCP_CLOSING
	case HasEnd(protocol):
		seconds = bpf.TimeoutTIMEOUT_TCP
	case cluster.Protocol(protocol) == cluster.ICMP || cluster.Protocol(protocol) == cluster.ICMPv6:
		seconds = bpf.TimeoutTIMEOUT_ICMP
	}
	return time.Duration(seconds) * time.Second
}
