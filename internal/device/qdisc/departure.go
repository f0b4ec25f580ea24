package qdisc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// ErrNotHeld reports a device whose qdisc does not hold packets until their departure time; the error that wraps it has the reason.
var ErrNotHeld = errors.New("packets are not held until their departure time")

// kernelDefaults are the qdiscs that the kernel chooses for a device, by net.core.default_qdisc or by its queues. Their handle is 0; that of a
// qdisc that somebody has chosen is not.
var kernelDefaults = []string{"noqueue", "pfifo_fast", "fq_codel", "mq"}

// What the queue of an uplink may hold: packets that depart within ten times what the datapath lets pods choose (LIMIT_HORIZON), since the
// node's own programs use it, too; later ones depart then. Four times as many as by default, since packets of pods with limits wait here.
const (
	horizon     = 200 * time.Millisecond
	packetLimit = 40_000
)

// HoldDepartures makes a device hold packets until their departure time, by the qdisc fq, one for each of its queues. It replaces only
// what the kernel has chosen by default. The error wraps ErrNotHeld if the device does not hold packets: the kernel has no fq, or
// somebody has chosen another qdisc.
func HoldDepartures(index int) error {
	all, err := list(index)
	if err != nil {
		return err
	}
	root := find(all, netlink.HANDLE_ROOT)
	switch {
	case root == nil: // a device that is down, or without a queue
		return setFq(index, netlink.HANDLE_ROOT, handle)
	case root.Type() == "fq":
		return nil
	case root.Type() == "mq" && root.Attrs().Handle != 0:
		return holdQueues(index, root, all)
	case root.Attrs().Handle != 0 || !slices.Contains(kernelDefaults, root.Type()):
		return fmt.Errorf("%w: device %d has the qdisc %s", ErrNotHeld, index, root.Type())
	case root.Type() != "mq":
		return setFq(index, netlink.HANDLE_ROOT, handle)
	}
	mq := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: handle, Parent: netlink.HANDLE_ROOT}, QdiscType: "mq"}
	if err := netlink.QdiscReplace(mq); err != nil {
		return fmt.Errorf("set the qdisc mq of device %d: %w", index, err)
	}
	if all, err = list(index); err != nil {
		return err
	}
	return holdQueues(index, find(all, netlink.HANDLE_ROOT), all)
}

// holdQueues sets fq at the queues of mq that have a default of the kernel. At an mq that somebody has chosen it sets none: with the mq,
// ReleaseDepartures removes those that it finds.
func holdQueues(index int, mq netlink.Qdisc, all []netlink.Qdisc) error {
	for _, q := range all {
		attrs := q.Attrs()
		if mq == nil || attrs.Parent>>16 != mq.Attrs().Handle>>16 || q.Type() == "fq" {
			continue
		}
		if attrs.Handle != 0 || mq.Attrs().Handle != handle || !slices.Contains(kernelDefaults, q.Type()) {
			return fmt.Errorf("%w: a queue of device %d has the qdisc %s", ErrNotHeld, index, q.Type())
		}
		if err := setFq(index, attrs.Parent, 0); err != nil {
			return err
		}
	}
	return nil
}

func setFq(index int, parent, of uint32) error {
	fq := netlink.NewFq(netlink.QdiscAttrs{LinkIndex: index, Handle: of, Parent: parent})
	fq.Horizon, fq.HorizonDropPolicy, fq.PacketLimit = uint32(horizon.Microseconds()), netlink.HORIZON_DROP_POLICY_CAP, packetLimit
	if err := netlink.QdiscReplace(fq); err != nil {
		return fmt.Errorf("%w: set the qdisc fq of device %d: %w", ErrNotHeld, index, err)
	}
	return nil
}

// ReleaseDepartures gives a device the kernel's default qdisc again, if HoldDepartures has set another one.
func ReleaseDepartures(index int) error {
	root, err := rootOf(index)
	if err != nil || root == nil || root.handle != handle {
		return err
	}
	del := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: handle, Parent: netlink.HANDLE_ROOT}, QdiscType: root.kind}
	if err := netlink.QdiscDel(del); err != nil && !gone(err) {
		return fmt.Errorf("remove the qdisc %s of device %d: %w", root.kind, index, err)
	}
	return nil
}

// ReleaseAll does the same for all devices, and gives the names of the devices that it has changed.
func ReleaseAll() (names []string, err error) {
	links, err := rtnl.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for _, link := range links {
		index := link.Attrs().Index
		root, rootErr := rootOf(index)
		if rootErr == nil && (root == nil || root.handle != handle || root.kind == "tbf") {
			continue
		}
		if releaseErr := errors.Join(rootErr, ReleaseDepartures(index)); releaseErr != nil {
			err = errors.Join(err, releaseErr)
			continue
		}
		names = append(names, link.Attrs().Name)
	}
	return names, err
}

func find(all []netlink.Qdisc, parent uint32) netlink.Qdisc {
	at := slices.IndexFunc(all, func(q netlink.Qdisc) bool { return q.Attrs().Parent == parent })
	if at < 0 {
		return nil
	}
	return all[at]
}
