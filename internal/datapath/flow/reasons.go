package flow

import (
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// DropReasons gives the names of all reasons of drops.
func DropReasons() (all []string) {
	for r := DropReason(bpf.DropReasonDROP_NONE) + 1; r < DropReason(len(dropReasons)); r++ {
		all = append(all, r.String())
	}
	return all
}
