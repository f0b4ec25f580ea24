// Package qdisc sets the queueing disciplines of devices that limit the bandwidth of pods: of host ends, and of uplinks.
package qdisc

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// handle marks the qdiscs that Beeline has set. Those that the kernel sets by default have the handle 0.
var handle = netlink.MakeHandle(0xbee0, 0)

// What a pod may receive at once, in bytes, and how long the rest may wait. The kernel cuts packets that are larger into their segments.
const (
	burst       = 128 << 10
	queueTime   = 0.1 // s
	queueMinLen = 256 << 10
)

// Limit limits what leaves by the egress of a device: the rate is in bytes/s, with link-layer headers; 0 is no limit. It replaces the
// qdisc that the kernel sets by default, and an earlier limit.
func Limit(index int, rate uint64) error {
	attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: handle, Parent: netlink.HANDLE_ROOT}
	if rate == 0 {
		root, err := rootOf(index)
		if err != nil || root == nil || root.Attrs().Handle != handle {
			return err
		}
		if err := netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "tbf"}); err != nil && !gone(err) {
			return fmt.Errorf("remove the limit of device %d: %w", index, err)
		}
		return nil
	}
	limit := uint32(min(max(queueTime*float64(rate), queueMinLen), 1<<30))
	tbf := &netlink.Tbf{QdiscAttrs: attrs, Rate: rate, Limit: limit, Buffer: netlink.Xmittime(rate, burst)}
	if err := netlink.QdiscReplace(tbf); err != nil {
		return fmt.Errorf("limit device %d to %d bytes/s: %w", index, rate, err)
	}
	return nil
}

// Limited gives the rate of Limit, 0 without one.
func Limited(index int) (rate uint64, err error) {
	root, err := rootOf(index)
	if tbf, ok := root.(*netlink.Tbf); ok && tbf.Handle == handle {
		rate = tbf.Rate
	}
	return rate, err
}

// rootOf gives the qdisc at the root of a device; nil if it has none.
func rootOf(index int) (netlink.Qdisc, error) {
	all, err := list(index)
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			return q, err
		}
	}
	return nil, err
}

func list(index int) ([]netlink.Qdisc, error) {
	all, err := rtnl.Dump(func() ([]netlink.Qdisc, error) {
		return netlink.QdiscList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}})
	})
	if err != nil {
		return nil, fmt.Errorf("list qdiscs of device %d: %w", index, err)
	}
	return all, nil
}

func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}
