// Package macvlan makes, checks and repairs the macvlan devices of pods. Their mode is vepa: each frame leaves by the parent in the
// node's namespace, whose programs decide about it, also a frame to another pod of the node. See
// docs/decisions/42-macvlan-at-the-parent.md.
package macvlan

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Spec says which device to make.
type Spec struct {
	// Parent is the index of a device of the node.
	Parent int
	// Name and MAC of the device in the pod.
	Name string
	MAC  net.HardwareAddr
	// MTU in bytes; 0: that of the parent, which is the maximum.
	MTU int
}

// Device is a macvlan device of a pod.
type Device struct {
	Name string
	// Index in the pod's namespace.
	Index int
	MAC   net.HardwareAddr
	MTU   int
	// Mode is as iproute2 prints it, such as "vepa".
	Mode string
	// Parent is the index of the parent, in the namespace that the pod's namespace knows as ParentNetns (netnsid).
	Parent, ParentNetns int
}

// NewMAC returns a random address: locally administered and unicast. No pod can know it beforehand and take it.
func NewMAC() net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	rand.Read(mac) // never fails
	mac[0] = mac[0]&0xfc | 0x02
	return mac
}

// Create makes a device in the pod's namespace, down. It is never visible in the node's. On error there is none. A MAC that another
// device on the parent uses is no error before the device is set up (EADDRINUSE).
func Create(pod ns.NetNS, spec Spec) (Device, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.HardwareAddr, attrs.MTU, attrs.ParentIndex = spec.MAC, spec.MTU, spec.Parent
	attrs.Namespace = netlink.NsFd(int(pod.Fd()))
	add := func(name string) error {
		attrs.Name = name
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_VEPA})
	}
	err := add(spec.Name)
	if err == nil {
		return Find(pod, spec.Name)
	}
	if errors.Is(err, unix.EEXIST) {
		// Linux 6.1 and 6.12 look the name up in the node's namespace, whose uplink may well be an eth0: the device gets its name in the
		// pod, which takes some milliseconds more.
		err = add(fmt.Sprintf("mv%x", []byte(NewMAC())))
	}
	if err != nil {
		return Device{}, fmt.Errorf("create macvlan device %s on device %d: %w", spec.Name, spec.Parent, err)
	}
	err = pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(attrs.Name)
		if err == nil {
			err = netlink.LinkSetName(link, spec.Name)
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("name macvlan device %s in the pod %s: %w", attrs.Name, spec.Name, err)
		return Device{}, errors.Join(err, Delete(pod, attrs.Name))
	}
	return Find(pod, spec.Name)
}

// Find finds a device in the pod's namespace by its name. The error wraps netlink.LinkNotFoundError if there is none.
func Find(pod ns.NetNS, name string) (found Device, err error) {
	err = pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", name, err)
		}
		macvlan, ok := link.(*netlink.Macvlan)
		if !ok {
			return fmt.Errorf("find %s in the pod: its type is %s, not macvlan", name, link.Type())
		}
		found = deviceOf(macvlan)
		return nil
	})
	return found, err
}

// List lists the macvlan and macvtap devices in the pod's namespace, those too that the pod has made.
func List(pod ns.NetNS) (all []Device, err error) {
	err = pod.Do(func(ns.NetNS) error {
		links, err := rtnl.Dump(netlink.LinkList)
		if err != nil {
			return fmt.Errorf("list devices of the pod: %w", err)
		}
		for _, link := range links {
			switch l := link.(type) {
			case *netlink.Macvlan:
				all = append(all, deviceOf(l))
			case *netlink.Macvtap:
				all = append(all, deviceOf(&l.Macvlan))
			}
		}
		return nil
	})
	return all, err
}

func deviceOf(link *netlink.Macvlan) Device {
	attrs := link.Attrs()
	return Device{
		Name: attrs.Name, Index: attrs.Index, MAC: attrs.HardwareAddr, MTU: attrs.MTU, Mode: modeName(link.Mode),
		Parent: attrs.ParentIndex, ParentNetns: attrs.NetNsID,
	}
}

var modeNames = map[netlink.MacvlanMode]string{
	netlink.MACVLAN_MODE_PRIVATE: "private", netlink.MACVLAN_MODE_VEPA: vepa, netlink.MACVLAN_MODE_BRIDGE: "bridge",
	netlink.MACVLAN_MODE_PASSTHRU: "passthru", netlink.MACVLAN_MODE_SOURCE: "source",
}

const vepa = "vepa"

func modeName(mode netlink.MacvlanMode) string {
	if name, ok := modeNames[mode]; ok {
		return name
	}
	return fmt.Sprintf("mode %d", mode)
}

// Check returns an error that names the first difference between a device and what Create made of spec.
func (d Device) Check(spec Spec) error {
	switch {
	case d.Parent != spec.Parent:
		return fmt.Errorf("the parent of %s is device %d, not %d", d.Name, d.Parent, spec.Parent)
	case d.Mode != vepa:
		return fmt.Errorf("the mode of %s is %s, not %s", d.Name, d.Mode, vepa)
	case !bytes.Equal(d.MAC, spec.MAC):
		return fmt.Errorf("the MAC of %s is %s, not %s", d.Name, d.MAC, spec.MAC)
	case spec.MTU != 0 && d.MTU != spec.MTU:
		return fmt.Errorf("the MTU of %s is %d, not %d", d.Name, d.MTU, spec.MTU)
	}
	return nil
}

// Locate finds the device that Create made of spec, also under another name: the one with its MAC, else the one with its name. The error
// wraps ENODEV if there is none on the parent.
func Locate(pod ns.NetNS, spec Spec) (Device, error) {
	all, err := List(pod)
	if err != nil {
		return Device{}, err
	}
	for _, is := range []func(Device) bool{
		func(d Device) bool { return bytes.Equal(d.MAC, spec.MAC) },
		func(d Device) bool { return d.Name == spec.Name },
	} {
		if at := slices.IndexFunc(all, func(d Device) bool { return d.Parent == spec.Parent && is(d) }); at >= 0 {
			return all[at], nil
		}
	}
	return Device{}, fmt.Errorf("find the macvlan device %s with MAC %s in the pod: %w", spec.Name, spec.MAC, unix.ENODEV)
}

// Repair sets mode, MAC and MTU of a device to those of spec, as far as they differ. The pod may have changed them, and the name, which
// stays.
func Repair(pod ns.NetNS, spec Spec) error {
	now, err := Locate(pod, spec)
	if err != nil {
		return err
	}
	return pod.Do(func(ns.NetNS) error {
		link := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Index: now.Index, Name: now.Name}, Mode: netlink.MACVLAN_MODE_VEPA}
		if now.Mode != vepa {
			if err := netlink.LinkModify(link); err != nil {
				return fmt.Errorf("set the mode of %s in the pod to %s: %w", now.Name, vepa, err)
			}
		}
		if !bytes.Equal(now.MAC, spec.MAC) {
			if err := netlink.LinkSetHardwareAddr(link, spec.MAC); err != nil {
				return fmt.Errorf("set the MAC of %s in the pod to %s: %w", now.Name, spec.MAC, err)
			}
		}
		if spec.MTU != 0 && now.MTU != spec.MTU {
			if err := netlink.LinkSetMTU(link, spec.MTU); err != nil {
				return fmt.Errorf("set the MTU of %s in the pod to %d: %w", now.Name, spec.MTU, err)
			}
		}
		return nil
	})
}

// SetProtoDown takes the carrier of a device away (IFLA_PROTO_DOWN), or gives it back: without one it sends nothing, also by packet sockets
// that skip its queue. Its addresses and routes stay.
func SetProtoDown(pod ns.NetNS, spec Spec, down bool) error {
	device, err := Locate(pod, spec)
	if err != nil {
		return err
	}
	value := nl.Uint8Attr(0)
	if down {
		value = nl.Uint8Attr(1)
	}
	return pod.Do(func(ns.NetNS) error {
		request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
		message := nl.NewIfInfomsg(unix.AF_UNSPEC)
		message.Index = int32(device.Index)
		request.AddData(message)
		request.AddData(nl.NewRtAttr(unix.IFLA_PROTO_DOWN, value))
		if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
			return fmt.Errorf("set protodown of %s in the pod to %t: %w", device.Name, down, err)
		}
		return nil
	})
}

// DeleteMAC deletes the devices on a parent with a MAC, whatever their names are. It is no error if there is none.
func DeleteMAC(pod ns.NetNS, parent int, mac net.HardwareAddr) error {
	all, err := List(pod)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		if d.Parent == parent && bytes.Equal(d.MAC, mac) {
			errs = append(errs, Delete(pod, d.Name))
		}
	}
	return errors.Join(errs...)
}

// Delete deletes a device in the pod's namespace. One that does not exist is no error.
func Delete(pod ns.NetNS, name string) error {
	return pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil && !rtnl.IsNotFound(err) {
			return fmt.Errorf("delete %s in the pod: %w", name, err)
		}
		return nil
	})
}

// PacketsFrom returns how many packets the device of spec has sent. ok is false if there is no such device.
func PacketsFrom(pod ns.NetNS, spec Spec) (packets uint64, ok bool) {
	device, err := Locate(pod, spec)
	if err != nil {
		return 0, false
	}
	err = pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByIndex(device.Index)
		if err == nil && link.Attrs().Statistics != nil {
			packets, ok = link.Attrs().Statistics.TxPackets, true
		}
		return err
	})
	return packets, ok && err == nil
}
