package datapath

// FlowMode says what flows tell of (--flows).
type FlowMode uint32

// The modes; they are enum flow_mode of bpf/types_policy.h.
const (
	// FlowsOff tells nothing.
	FlowsOff = FlowMode(bpfFlowModeFLOWS_OFF)
	// FlowsDrops tells of packets that are dropped, for any reason.
	FlowsDrops = FlowMode(bpfFlowModeFLOWS_DROPS)
	// FlowsPolicy tells of sessions of pods that policies select as well.
	FlowsPolicy = FlowMode(bpfFlowModeFLOWS_POLICY)
	// FlowsAll tells of every pod's sessions.
	FlowsAll = FlowMode(bpfFlowModeFLOWS_ALL)
)

// DropReasons gives the names of all reasons of drops.
func DropReasons() (all []string) {
	for r := DropReason(bpfDropReasonDROP_NONE) + 1; r < DropReason(len(dropReasons)); r++ {
		all = append(all, r.String())
	}
	return all
}
