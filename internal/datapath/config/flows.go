package config

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// FlowMode says what flows tell of (--flows).
type FlowMode uint32

// The modes; they are enum flow_mode of bpf/types_policy.h.
const (
	// FlowsOff tells nothing.
	FlowsOff = FlowMode(bpf.FlowModeFLOWS_OFF)
	// FlowsDrops tells of packets that are dropped, for any reason.
	FlowsDrops = FlowMode(bpf.FlowModeFLOWS_DROPS)
	// FlowsPolicy tells of sessions of pods that policies select as well.
	FlowsPolicy = FlowMode(bpf.FlowModeFLOWS_POLICY)
	// FlowsAll tells of every pod's sessions.
	FlowsAll = FlowMode(bpf.FlowModeFLOWS_ALL)
)
