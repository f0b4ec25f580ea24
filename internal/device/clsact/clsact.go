// Package clsact attaches BPF programs by filters of a clsact qdisc, for kernels without tcx (before 6.6).
package clsact

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Beeline's filters have fixed priorities and a fixed handle in a clsact hook: replacing one is atomic and duplicates are impossible. A
// smaller priority comes first.
const (
	filterPriority = rtnl.Protocol
	firstPriority  = filterPriority - 1
	filterHandle   = 1
)

// Hook is a place for a filter at a device.
type Hook struct {
	Ingress bool
	// First is the place before that of the hook's other program.
	First bool
}

func (h Hook) String() string {
	if h.Ingress {
		return "ingress"
	}
	return "egress"
}

func (h Hook) priority() uint16 {
	if h.First {
		return firstPriority
	}
	return filterPriority
}

func (h Hook) parent() uint32 {
	if h.Ingress {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

// Filter is a BPF program that Replace attached.
type Filter struct {
	Hook
	// Name is the argument of Replace.
	Name string
	// ProgramID is the kernel's id of the program.
	ProgramID int
}

// Replace attaches the program with file descriptor fd to the ingress or egress hook of a device, or atomically replaces the one that
// it attached there before. The filter is in direct-action mode (the program's return code is the verdict) and matches every
// protocol. A missing clsact qdisc is added; other filters stay. The kernel takes its own reference: fd may be closed afterwards.
func Replace(ifindex int, at Hook, fd int, name string) error {
	if err := Ensure(ifindex); err != nil {
		return err
	}
	filter := &netlink.BpfFilter{FilterAttrs: attrs(ifindex, at), Fd: fd, Name: name, DirectAction: true}
	if err := netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("attach %s to %s of device %d: %w", name, at, ifindex, err)
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
		at := Hook{Ingress: ingress}
		list, err := rtnl.Dump(func() ([]netlink.Filter, error) { return netlink.FilterList(link, at.parent()) })
		if err != nil {
			return nil, fmt.Errorf("list filters at %s of %s: %w", at, link.Attrs().Name, err)
		}
		for _, filter := range list {
			bpf, ok := filter.(*netlink.BpfFilter)
			if !ok || bpf.Handle != filterHandle {
				continue
			}
			if at.First = bpf.Priority == firstPriority; bpf.Priority == at.priority() {
				filters = append(filters, Filter{Hook: at, Name: bpf.Name, ProgramID: bpf.Id})
			}
		}
	}
	return filters, nil
}

// Delete detaches what Replace attached to a hook; no filter and no device are no error. The clsact qdisc stays: others may use it.
func Delete(ifindex int, at Hook) error {
	err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: attrs(ifindex, at)})
	// EINVAL: there is no clsact qdisc.
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("detach from %s of device %d: %w", at, ifindex, err)
}

func attrs(ifindex int, at Hook) netlink.FilterAttrs {
	return netlink.FilterAttrs{
		LinkIndex: ifindex, Parent: at.parent(), Handle: filterHandle, Priority: at.priority(), Protocol: unix.ETH_P_ALL,
	}
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
