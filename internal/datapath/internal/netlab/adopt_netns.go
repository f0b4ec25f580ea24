package netlab

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/device/clsact"
)

// ProgramsOn gives the ids of the programs at ingress and egress of a device, as the kernel has them: tcx links, or
// our filters where the datapath uses those.
func (n *Node) ProgramsOn(t *testing.T, ifindex int) []ebpf.ProgramID {
	t.Helper()
	var all []ebpf.ProgramID
	n.Do(t, func() error {
		if !n.D.Objects.Tcx {
			filters, err := clsact.List(ifindex)
			for _, f := range filters {
				all = append(all, ebpf.ProgramID(f.ProgramID))
			}
			return err
		}
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
			result, err := link.QueryPrograms(link.QueryOptions{Target: ifindex, Attach: at})
			if err != nil {
				return err
			}
			for _, p := range result.Programs {
				all = append(all, p.ID)
			}
		}
		return nil
	})
	return all
}
