package samenode

import (
	"fmt"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// Reason is why a socket went back to packets.
type Reason string

// reasons are in the order of enum same_node_count.
var reasons = [bpf.SameNodeCountSAME_NODE_LEFT_MAX]Reason{
	bpf.SameNodeCountSAME_NODE_LEFT_BULK:       "bulk",
	bpf.SameNodeCountSAME_NODE_LEFT_POLICY:     "policy",
	bpf.SameNodeCountSAME_NODE_LEFT_OPT_OUT:    "opt_out",
	bpf.SameNodeCountSAME_NODE_LEFT_PEER:       "peer",
	bpf.SameNodeCountSAME_NODE_LEFT_UNSUITABLE: "unsuitable",
	bpf.SameNodeCountSAME_NODE_LEFT_AGENT:      "agent",
}

// Counts are what has happened since the programs were loaded.
type Counts struct {
	// Left counts sockets that went back to packets.
	Left map[Reason]uint64
	// Joined counts sockets that could meet, and NoShare sockets beyond their pod's share.
	Joined, NoShare uint64
	// Messages and Bytes went from socket to socket.
	Messages, Bytes uint64
}

// Revoked is how many sockets went back to packets because policies do not allow their connection.
func (c Counts) Revoked() uint64 { return c.Left[reasons[bpf.SameNodeCountSAME_NODE_LEFT_POLICY]] }

// Counts reads the counters.
func (s *SameNode) Counts() (Counts, error) {
	c := Counts{Left: map[Reason]uint64{}}
	var all [bpf.SameNodeCountSAME_NODE_COUNT_MAX]uint64
	for i := range all {
		var perCPU []uint64
		if err := s.maps.Counts.Lookup(uint32(i), &perCPU); err != nil {
			return c, fmt.Errorf("read map %s: %w", bpf.SameNodeMapSnCounts, err)
		}
		for _, n := range perCPU {
			all[i] += n
		}
	}
	for i, reason := range reasons {
		c.Left[reason] = all[i]
	}
	c.Joined, c.NoShare = all[bpf.SameNodeCountSAME_NODE_JOINED], all[bpf.SameNodeCountSAME_NODE_NO_SHARE]
	c.Messages, c.Bytes = all[bpf.SameNodeCountSAME_NODE_MESSAGES], all[bpf.SameNodeCountSAME_NODE_BYTES]
	return c, nil
}
