package flow

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// DropReasons returns the names of all drop reasons.
func DropReasons() (all []string) {
	for r := DropReason(bpf.DropReasonDROP_NONE) + 1; r < DropReason(len(dropReasons)); r++ {
		all = append(all, r.String())
	}
	return all
}
