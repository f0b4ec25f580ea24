// Package clsact attaches BPF programs by filters of a clsact qdisc, for kernels without tcx (before 6.6).
package clsact

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Beeline's filters have a fixed priority and handle in a clsact hook: replacing one is atomic and duplicates are impossible.
const (
	filterPriority = rtnl.Protocol
	filterHandle   = 1
)

// Filter is a BPF program that Replace attached.
type Filter struct {
	Ingress bool
	// Name is the argument of Replace.
	Name string
	// ProgramID is the kernel's id of the program.
	ProgramID int
}

// Replace attaches the program with file descriptor fd to the ingress or egress hook of a device, or atomically replaces the one that
// it attached there before. The filter is in direct-action mode (the program's return code is the verdict) and matches every
// protocol. A missing clsact qdisc is added; other filters stay. The kernel takes its own reference: fd may be closed afterwards.
func Replace(ifindex int, ingress bool, fd int, name string) error {
	if err := Ensure(ifindex); err != nil {
		return err
	}
	filter := &netlink.BpfFilter{FilterAttrs: attrs(ifindex, ingress), Fd: fd, Name: name, DirectAction: true}
	if err := netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("attach %s to %s of device %d: %w", name, direction(ingress), ifindex, err)
	}
	return nil
}

// List returns what Replace attached to a device: nothing without a clsact qdisc.
func List(ifindex int) ([]Filter, error) {
	link, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil, fmt.Errorf("find device %d: %w", ifindex, err)
	}
	var filters []Filter
	for _, ingress := range []bool{true, false} {
		list, err := rtnl.Dump(func() ([]netlink.Filter, error) { return netlink.FilterList(link, filterParent(ingress)) })
		if err != nil {
			return nil, fmt.Errorf("list filters at %s of %s: %w", direction(ingress), link.Attrs().Name, err)
		}
		for _, filter := range list {
			bpf, ok := filter.(*netlink.BpfFilter)
			if ok && bpf.Priority == filterPriority && bpf.Handle == filterHandle {
				filters = append(filters, Filter{Ingress: ingress, Name: bpf.Name, ProgramID: bpf.Id})
			}
		}
	}
	return filters, nil
}

// Delete detaches what Replace attached to a hook; no filter and no device are no error. The clsact qdisc stays: others may use it.
func Delete(ifindex int, ingress bool) error {
	err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: attrs(ifindex, ingress)})
	// EINVAL: there is no clsact qdisc.
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("detach from %s of device %d: %w", direction(ingress), ifindex, err)
}

func attrs(ifindex int, ingress bool) netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: ifindex, Parent: filterParent(ingress), Handle: filterHandle, Priority: filterPriority, Protocol: unix.ETH_P_ALL,
	}
}

func filterParent(ingress bool) uint32 {
	if ingress {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

func direction(ingress bool) string {
	if ingress {
		return "ingress"
	}
	return "egress"
}

// Ensure adds a clsact qdisc to a device unless it has one.
func Ensure(ifindex int) error {
	err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err == nil || errors.Is(err, unix.EEXIST) {
		return nil
	}
	return fmt.Errorf("add clsact qdisc to device %d: %w", ifindex, err)
}
