// Package vlan manages VLAN devices (IEEE 802.1Q) that IPPools need. It uses those of the administrator, and never changes them.
package vlan

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// alias marks the devices that Beeline has made.
const alias = "beeline: VLAN of IPPools"

// nameMax is how many bytes the name of a device has at most (IFNAMSIZ, without the final zero).
const nameMax = unix.IFNAMSIZ - 1

// Errors of Make; the error that wraps them has the details.
var (
	ErrUnsupported = errors.New("this kernel has no VLAN devices (CONFIG_VLAN_8021Q)")
	ErrConflict    = errors.New("it is not the node's device of this VLAN")
	ErrDown        = errors.New("is down")
)

// Device is a VLAN device.
type Device struct {
	Name  string
	Index int
	// Parent is the index of the device below, 0 if that is in another network namespace. Tag is the VLAN's number.
	Parent int
	Tag    uint16
	// MTU in bytes.
	MTU int
	// Own says that Beeline has made it. Up says that it is up.
	Own, Up bool
	// protocol is that of the tag: others than 802.1Q are none that Make looks for.
	protocol netlink.VlanProtocol
}

// Name is the name of a new device: that of the device below and the tag, as in eth0.7, or a short one of the same form.
func Name(parent string, tag uint16) string {
	if name := parent + "." + strconv.Itoa(int(tag)); len(name) <= nameMax {
		return name
	}
	h := fnv.New32a()
	h.Write([]byte(parent))
	return fmt.Sprintf("bv%08x.%d", h.Sum32(), tag)
}

// List lists the VLAN devices.
func List() (all []Device, err error) {
	links, err := rtnl.Dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	for _, link := range links {
		if v, is := link.(*netlink.Vlan); is {
			all = append(all, deviceOf(v))
		}
	}
	return all, nil
}

func deviceOf(v *netlink.Vlan) Device {
	parent := v.ParentIndex
	if v.NetNsID >= 0 {
		parent = 0 // in another network namespace, where it may have any index
	}
	return Device{
		Name: v.Name, Index: v.Index, Parent: parent, Tag: uint16(v.VlanId), MTU: v.MTU,
		Own: v.Alias == alias, Up: v.Flags&net.FlagUp != 0, protocol: v.VlanProtocol,
	}
}

// Find finds the device of a VLAN among all; the administrator's before Beeline's.
func Find(all []Device, parent int, tag uint16) (found Device, ok bool) {
	for _, d := range all {
		if d.Parent == parent && d.Tag == tag && d.protocol == netlink.VLAN_PROTOCOL_8021Q && (!ok || !d.Own) {
			found, ok = d, true
		}
	}
	return found, ok
}

// Make makes the device of a VLAN on the device with this name, index and MTU. It is down: see Open.
func Make(parent string, index, mtu int, tag uint16) (Device, error) {
	name := Name(parent, tag)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex, attrs.MTU = name, index, mtu
	err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: int(tag), VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return Device{}, fmt.Errorf("%w, or not on %s", ErrUnsupported, parent)
	case errors.Is(err, unix.EEXIST):
		if _, err := netlink.LinkByName(name); rtnl.IsNotFound(err) {
			return Device{}, fmt.Errorf("VLAN %d of %s has a device in another network namespace: %w", tag, parent, ErrConflict)
		}
		return Device{}, fmt.Errorf("device %s exists: %w: delete or rename it", name, ErrConflict)
	case err != nil:
		return Device{}, fmt.Errorf("create device %s: %w", name, err)
	}
	link, err := netlink.LinkByName(name)
	if err != nil {
		return Device{}, fmt.Errorf("find device %s after its creation: %w", name, err)
	}
	v, is := link.(*netlink.Vlan)
	if !is {
		return Device{}, fmt.Errorf("device %s after its creation: %w", name, ErrConflict)
	}
	if err := netlink.LinkSetAlias(link, alias); err != nil {
		return Device{}, errors.Join(fmt.Errorf("mark device %s: %w", name, err), netlink.LinkDel(link))
	}
	d := deviceOf(v)
	d.Own = true
	return d, nil
}

// Open gives a device of Beeline the MTU of the device below, and sets it up. The network behind it is that of pods: the node takes no
// addresses and no routes of its routers, and answers for no address of other devices. A device of the administrator has to be up.
func Open(d Device, mtu int) error {
	if !d.Own {
		if !d.Up {
			return fmt.Errorf("device %s %w: set it up, or delete it", d.Name, ErrDown)
		}
		return nil
	}
	link, err := netlink.LinkByIndex(d.Index)
	if err != nil {
		return fmt.Errorf("find device %s: %w", d.Name, err)
	}
	if d.MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU of %s to %d: %w", d.Name, mtu, err)
		}
	}
	if d.Up {
		return nil
	}
	if err := errors.Join(sysctl.SetDevice("ipv4", d.Name, "arp_ignore=1"), sysctl.SetDevice("ipv6", d.Name, "accept_ra=0")); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", d.Name, err)
	}
	return nil
}

// Remove deletes a device that Beeline has made; it keeps those of the administrator.
func Remove(d Device) error {
	if !d.Own {
		return nil
	}
	link, err := netlink.LinkByIndex(d.Index)
	if err == nil && link.Attrs().Alias == alias && link.Type() == "vlan" {
		err = netlink.LinkDel(link)
	}
	if err != nil && !rtnl.IsNotFound(err) {
		return fmt.Errorf("delete device %s: %w", d.Name, err)
	}
	return nil
}

// RemoveAll deletes all devices that Beeline has made, and gives their names.
func RemoveAll() (removed []string, err error) {
	all, err := List()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, d := range all {
		if !d.Own {
			continue
		}
		err := Remove(d)
		errs = append(errs, err)
		if err == nil {
			removed = append(removed, d.Name)
		}
	}
	return removed, errors.Join(errs...)
}
