package config

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// FlowMode selects which flow events the datapath reports (--flows).
type FlowMode uint32

// The modes; as enum flow_mode of bpf/types_policy.h.
const (
	// FlowsOff reports nothing.
	FlowsOff = FlowMode(bpf.FlowModeFLOWS_OFF)
	// FlowsDrops reports dropped packets, for every reason.
	FlowsDrops = FlowMode(bpf.FlowModeFLOWS_DROPS)
	// FlowsPolicy also reports connections of pods that policies select.
	FlowsPolicy = FlowMode(bpf.FlowModeFLOWS_POLICY)
	// FlowsAll also reports connections of all other pods.
	FlowsAll = FlowMode(bpf.FlowModeFLOWS_ALL)
)
