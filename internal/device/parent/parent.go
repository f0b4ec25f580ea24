// Package parent finds devices of the node that can carry macvlan devices of pods: those where each frame of a pod passes the programs
// of the device. See docs/decisions/42-macvlan-at-the-parent.md.
package parent

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Parent is a device that can carry macvlan devices of pods.
type Parent struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// MTU in bytes, without the link-layer header: the maximum of its macvlan devices.
	MTU int
}

// ErrUnsuitable reports a device that cannot carry macvlan devices of pods; the error that wraps it has the reason.
var ErrUnsuitable = errors.New("cannot carry macvlan devices of pods")

// Find finds the device with a name and checks that it can be a parent. The error wraps ErrUnsuitable if it cannot.
func Find(name string) (Parent, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return Parent{}, fmt.Errorf("find device %s: %w", name, err)
	}
	reason, err := refusal(link, masterOf, features)
	if err != nil {
		return Parent{}, err
	}
	if reason == "" {
		reason, err = refusalBelow(link)
		if err != nil {
			return Parent{}, err
		}
	}
	if reason != "" {
		return Parent{}, fmt.Errorf("device %s %w: it %s", name, ErrUnsuitable, reason)
	}
	attrs := link.Attrs()
	return Parent{Name: attrs.Name, Index: attrs.Index, MAC: attrs.HardwareAddr, MTU: attrs.MTU}, nil
}

// stacked are kinds of devices that stand on another one, which is the parent to use.
var stacked = []string{"macvlan", "macvtap", "ipvlan", "ipvtap"}

// offload is the kernel's name of the feature by which a network card delivers frames to macvlan devices itself.
const offload = "l2-fwd-offload"

// refusal returns why a device cannot be a parent, to follow "it"; empty if it can. master returns the name of a device by its index,
// on the features of a device by its name.
func refusal(link netlink.Link, master func(index int) (string, error), on func(name string) (map[string]bool, error)) (string, error) {
	attrs := link.Attrs()
	switch {
	case attrs.EncapType != "ether" || len(attrs.HardwareAddr) != 6 || attrs.Flags&net.FlagLoopback != 0:
		return "has no Ethernet address", nil
	case link.Type() == "bridge":
		return "is a bridge, whose ports exchange frames that pass no program: use a device that is no bridge", nil
	case device.Pods.IsHostEnd(link.Type(), attrs.Name):
		return "is a device of a pod", nil
	case slices.Contains(stacked, link.Type()):
		return fmt.Sprintf("is itself a %s device: use the device below it", link.Type()), nil
	case attrs.MasterIndex != 0:
		name, err := master(attrs.MasterIndex)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("belongs to %s, which takes its frames: use %s, unless that is a bridge", name, name), nil
	}
	active, err := on(attrs.Name)
	if err != nil {
		return "", err
	}
	if active[offload] {
		return fmt.Sprintf("delivers frames to macvlan devices in hardware, past every program: turn that off with ethtool -K %s %s off",
			attrs.Name, offload), nil
	}
	return "", nil
}

// refusalBelow is refusal for the device below a VLAN device, whose frames that one sends and receives. The offload is for macvlan devices on
// the device below itself.
func refusalBelow(link netlink.Link) (string, error) {
	if link.Type() != "vlan" || link.Attrs().NetNsID >= 0 {
		return "", nil
	}
	below, err := netlink.LinkByIndex(link.Attrs().ParentIndex)
	if err != nil {
		return "", fmt.Errorf("find the device below %s: %w", link.Attrs().Name, err)
	}
	reason, err := refusal(below, masterOf, func(string) (map[string]bool, error) { return nil, nil })
	if reason != "" {
		reason = fmt.Sprintf("is a VLAN of %s, which %s", below.Attrs().Name, reason)
	}
	return reason, err
}

func masterOf(index int) (string, error) {
	link, err := netlink.LinkByIndex(index)
	if rtnl.IsNotFound(err) {
		return fmt.Sprintf("device %d", index), nil // of another namespace, or just gone
	}
	if err != nil {
		return "", fmt.Errorf("find device %d: %w", index, err)
	}
	return link.Attrs().Name, nil
}
