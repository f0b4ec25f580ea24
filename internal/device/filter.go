package device

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Where our filters sit in a clsact hook. A fixed place makes replacing one atomic and duplicates impossible.
const (
	filterPriority = Protocol
	filterHandle   = 1
)

// Filter is a BPF program that is attached the old way, by a clsact qdisc, on kernels without tcx (< 6.6).
type Filter struct {
	Ingress bool
	// Name is what ReplaceFilter was given; ProgramID is the kernel's id of the program.
	Name      string
	ProgramID int
}

// ReplaceFilter attaches the program with file descriptor fd to the ingress or egress hook of a device, or
// replaces the one that it attached there before, without a moment in which there is none. The filter
// acts directly (the program's return code is the verdict) and sees every protocol. The clsact qdisc is
// made if it is absent; other filters in it are not touched. The kernel takes its own reference: fd may be
// closed afterwards.
func ReplaceFilter(ifindex int, ingress bool, fd int, name string) error {
	if err := ensureClsact(ifindex); err != nil {
		return err
	}
	filter := &netlink.BpfFilter{FilterAttrs: filterPlace(ifindex, ingress), Fd: fd, Name: name, DirectAction: true}
	if err := netlink.FilterReplace(filter); err != nil {
		return fmt.Errorf("attach %s to %s of device %d: %w", name, direction(ingress), ifindex, err)
	}
	return nil
}

// Filters lists what ReplaceFilter attached to a device. A device without clsact qdisc has none.
func Filters(ifindex int) ([]Filter, error) {
	link, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil, fmt.Errorf("find device %d: %w", ifindex, err)
	}
	has, err := hasClsact(link)
	if err != nil || !has {
		return nil, err
	}
	var found []Filter
	for _, ingress := range []bool{true, false} {
		list, err := complete(func() ([]netlink.Filter, error) { return netlink.FilterList(link, filterParent(ingress)) })
		if err != nil {
			return nil, fmt.Errorf("list filters at %s of %s: %w", direction(ingress), link.Attrs().Name, err)
		}
		for _, filter := range list {
			bpf, ok := filter.(*netlink.BpfFilter)
			if ok && bpf.Priority == filterPriority && bpf.Handle == filterHandle {
				found = append(found, Filter{Ingress: ingress, Name: bpf.Name, ProgramID: bpf.Id})
			}
		}
	}
	return found, nil
}

// DeleteFilter detaches what ReplaceFilter attached to a hook. If there is nothing, or no device any more,
// that is no error. The clsact qdisc stays: others may use it.
func DeleteFilter(ifindex int, ingress bool) error {
	err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: filterPlace(ifindex, ingress)})
	// EINVAL: there is no clsact qdisc.
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("detach from %s of device %d: %w", direction(ingress), ifindex, err)
}

func filterPlace(ifindex int, ingress bool) netlink.FilterAttrs {
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

func ensureClsact(ifindex int) error {
	err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}})
	if err == nil || errors.Is(err, unix.EEXIST) {
		return nil
	}
	return fmt.Errorf("add clsact qdisc to device %d: %w", ifindex, err)
}

func hasClsact(link netlink.Link) (bool, error) {
	qdiscs, err := complete(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) })
	if err != nil {
		return false, fmt.Errorf("list qdiscs of %s: %w", link.Attrs().Name, err)
	}
	for _, qdisc := range qdiscs {
		if qdisc.Type() == "clsact" {
			return true, nil
		}
	}
	return false, nil
}
