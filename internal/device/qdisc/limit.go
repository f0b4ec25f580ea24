// Package qdisc sets the queueing disciplines of devices that limit the bandwidth of pods: of host ends, and of uplinks.
package qdisc

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// ErrOther reports a device with a qdisc that somebody else has chosen.
var ErrOther = errors.New("it has another queueing discipline")

// handle marks the qdiscs that Beeline has set. Those that the kernel sets by default have the handle 0.
var handle = netlink.MakeHandle(0xbee0, 0)

// What may leave a device at once: what it sends in burstTime, but at least burstMin and at most burstMax bytes. The kernel cuts larger
// packets into their segments. What has to wait longer than queueTime is dropped, if it is more than queueMin bytes, and what is more than
// queueMax: the memory of packets that wait counts for no pod.
const (
	burstTime = 10 * time.Millisecond
	burstMin  = 24 << 10 // two jumbo frames
	burstMax  = 128 << 10
	queueTime = 100 * time.Millisecond
	queueMin  = 256 << 10
	queueMax  = 32 << 20
	// The kernel has the time of a burst in 32 bits, which end at 274 s.
	burstTimeMax = 200 * time.Second
)

// Burst is how long a device with this limit may send faster; the rate is in bytes/s.
func Burst(rate uint64) time.Duration {
	return time.Duration(float64(burstOf(rate)) / float64(rate) * float64(time.Second))
}

func burstOf(rate uint64) uint32 {
	in := func(t time.Duration) float64 { return float64(rate) * t.Seconds() }
	return uint32(min(max(in(burstTime), burstMin), burstMax, in(burstTimeMax)))
}

// Limit limits what leaves a device: the rate is in bytes/s, with link-layer headers; 0 is no limit. It replaces the qdisc that the kernel
// sets by default, and an earlier limit. The error wraps ErrOther if somebody has chosen another one.
func Limit(index int, rate uint64) error {
	root, err := rootOf(index)
	if err != nil {
		return err
	}
	own := root != nil && root.handle == handle
	attrs := netlink.QdiscAttrs{LinkIndex: index, Handle: handle, Parent: netlink.HANDLE_ROOT}
	switch {
	case rate == 0 && !own:
		return nil
	case rate == 0:
		if err := netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: attrs, QdiscType: "tbf"}); err != nil && !gone(err) {
			return fmt.Errorf("remove the limit of device %d: %w", index, err)
		}
		return nil
	case own && rateOf(root) == rate:
		return nil
	case root != nil && !own && root.handle != 0:
		return fmt.Errorf("limit device %d: %w: %s", index, ErrOther, root.kind)
	}
	limit := uint32(min(max(float64(rate)*queueTime.Seconds(), queueMin), queueMax))
	tbf := &netlink.Tbf{QdiscAttrs: attrs, Rate: rate, Limit: limit, Buffer: netlink.Xmittime(rate, burstOf(rate))}
	if err := netlink.QdiscReplace(tbf); err != nil {
		return fmt.Errorf("limit device %d to %d bytes/s: %w", index, rate, err)
	}
	return nil
}

// Limited gives the rate of Limit, 0 without one.
func Limited(index int) (rate uint64, err error) {
	root, err := rootOf(index)
	return rateOf(root), err
}

// rateOf gives the rate of a qdisc that Limit has set, 0 for others.
func rateOf(q *rootQdisc) uint64 {
	if q == nil || q.handle != handle {
		return 0
	}
	return q.rate
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
