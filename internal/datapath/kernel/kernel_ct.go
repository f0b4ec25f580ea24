package kernel

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// conntrackModule is the kernel module of connection tracking, where that is not built in.
const conntrackModule = "nf_conntrack"

// HaveConntrack says whether BPF programs can ask the kernel's connection tracking (bpf_skb_ct_lookup, Linux
// 5.18). Where that is a module, the module has to be loaded: a rule with a ct expression or a translation does so.
func HaveConntrack() (bool, error) {
	kernel, err := btf.LoadKernelSpec()
	if errors.Is(err, ebpf.ErrNotSupported) {
		return false, nil // a kernel that does not describe itself (CONFIG_DEBUG_INFO_BTF)
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

// conntrackTypes are the types of the module; nil where there is none.
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

// AddConntrackTypes adds the module's types to those by which the offset of nf_conn.status is found.
func AddConntrackTypes(options *ebpf.ProgramOptions) error {
	module, err := conntrackTypes()
	if err != nil || module == nil {
		return err
	}
	options.ExtraRelocationTargets = append(options.ExtraRelocationTargets, module)
	return nil
}
