package kernel

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// conntrackModule is the kernel module of conntrack, where it is not built in.
const conntrackModule = "nf_conntrack"

// HaveConntrack reports whether BPF programs can look up the kernel's conntrack (bpf_skb_ct_lookup, Linux 5.18).
// Where conntrack is a module, it must be loaded: an nftables rule with a ct expression or NAT loads it.
func HaveConntrack() (bool, error) {
	kernel, err := btf.LoadKernelSpec()
	if errors.Is(err, ebpf.ErrNotSupported) {
		return false, nil // a kernel without CONFIG_DEBUG_INFO_BTF
	}
	if err != nil {
		return false, fmt.Errorf("read kernel types: %w", err)
	}
	specs := []*btf.Spec{kernel}
	module, err := conntrackTypes()
	if err != nil {
		return false, err
	}
	if module != nil {
		specs = append(specs, module)
	}
	for _, spec := range specs {
		var lookup *btf.Func
		err := spec.TypeByName("bpf_skb_ct_lookup", &lookup)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, btf.ErrNotFound) {
			return false, fmt.Errorf("look for bpf_skb_ct_lookup: %w", err)
		}
	}
	return false, nil
}

// conntrackTypes are the types of the module; nil if there is none.
func conntrackTypes() (*btf.Spec, error) {
	module, err := btf.LoadKernelModuleSpec(conntrackModule)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ebpf.ErrNotSupported) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read types of module %s: %w", conntrackModule, err)
	}
	return module, nil
}

// AddConntrackTypes adds the module's types to the relocation targets, for the offset of nf_conn.status.
func AddConntrackTypes(options *ebpf.ProgramOptions) error {
	module, err := conntrackTypes()
	if err != nil || module == nil {
		return err
	}
	options.ExtraRelocationTargets = append(options.ExtraRelocationTargets, module)
	return nil
}
