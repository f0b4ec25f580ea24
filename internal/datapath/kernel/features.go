// Package kernel probes the running kernel: required and optional features, and conntrack lookups from BPF.
package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/beeline-cni/beeline/internal/device/kernelprobe"
)

// loopback has index 1 in every network namespace.
const loopback = 1

// passAll loads a program that passes every packet.
func passAll(name string) (*ebpf.Program, error) {
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         name,
		Type:         ebpf.SchedCLS,
		License:      "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load program: %w", err)
	}
	return pass, nil
}

// HaveTCX attaches a program that passes every packet to the egress of the loopback device and detaches it. This
// works if the kernel has tcx (Linux 6.6). A probe that fails for another reason is an error: filters next to the
// links of an earlier agent would run every packet through both.
func HaveTCX() (bool, error) {
	pass, err := passAll("probe_tcx")
	if err != nil {
		return false, err
	}
	defer pass.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: loopback, Program: pass, Attach: ebpf.AttachTCXEgress})
	if errors.Is(err, ebpf.ErrNotSupported) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, l.Close()
}

// HaveNetkit makes a netkit device in a temporary network namespace and attaches a program to the pod's end. The error
// says why this kernel does not support netkit pods (Linux 6.7, CONFIG_NETKIT); nil if it does. Netkit pods need tcx as
// well: to_pod is at the egress of the host end.
func HaveNetkit() error {
	pass, err := passAll("probe_netkit")
	if err != nil {
		return err
	}
	defer pass.Close()
	return kernelprobe.Netkit(func(primary int) error {
		l, err := link.AttachNetkit(link.NetkitOptions{Interface: primary, Program: pass, Attach: ebpf.AttachNetkitPeer})
		if err != nil {
			return fmt.Errorf("attach a program to a netkit device: %w", err)
		}
		return l.Close()
	})
}

// Required reports the required features that the kernel lacks, and ErrRealtime; nil if it has all.
func Required() error {
	if err := notRealtime(); err != nil {
		return err
	}
	var missing []error
	for name, probe := range map[string]func() error{
		"tc programs":                          func() error { return features.HaveProgramType(ebpf.SchedCLS) },
		"bpf_redirect_peer (Linux 5.10)":       func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnRedirectPeer) },
		"bpf_redirect_neigh (Linux 5.10)":      func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnRedirectNeigh) },
		"bpf_ktime_get_coarse_ns (Linux 5.11)": func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnKtimeGetCoarseNs) },
	} {
		// Only "not supported" stops the agent. Another failure of a probe does not describe the kernel, and loading
		// the programs reports the real problem.
		if errors.Is(probe(), ebpf.ErrNotSupported) {
			missing = append(missing, fmt.Errorf("the kernel lacks %s", name))
		}
	}
	return errors.Join(missing...)
}

// HaveSocketErrors reports whether programs at sockets can set the error that an application gets.
func HaveSocketErrors() bool {
	return !errors.Is(features.HaveProgramHelper(ebpf.CGroupSockAddr, asm.FnSetRetval), ebpf.ErrNotSupported)
}
