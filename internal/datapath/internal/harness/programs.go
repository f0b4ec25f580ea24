package harness

import (
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/kernel"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// AttachForms are the ways to attach programs on this kernel: by tcx links, if available, and (true) as filters.
func AttachForms(tb testing.TB) (legacy []bool) {
	tb.Helper()
	testenv.Root(tb)
	tcx, err := kernel.HaveTCX()
	if err != nil {
		tb.Fatal(err)
	}
	if !tcx {
		return []bool{true}
	}
	if testenv.DeviceKind() == "netkit" { // kernels with netkit have tcx
		return []bool{false}
	}
	return []bool{false, true}
}

// FramePrograms are the programs that bpf_prog_test_run can run: all but those of WireGuard's device, which add an Ethernet
// header, and of IPsec's, which need a packet that IPsec has decrypted.
func FramePrograms() []string {
	encrypted := slices.Concat(bpf.WireguardPrograms, bpf.IPsecPrograms)
	return slices.DeleteFunc(slices.Clone(bpf.ProgramNames[:]), func(name string) bool { return slices.Contains(encrypted, name) })
}
