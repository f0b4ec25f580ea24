// Package device is the only one that speaks netlink: links, addresses, routes, neighbours, MTU, sysctls
// and traffic control filters. It holds no state; what it says is what the kernel said a moment ago.
//
// Every function acts in the network namespace of the calling thread unless its comment says otherwise. A
// goroutine that has entered another namespace must be locked to its thread (ns.Do of
// containernetworking/plugins does that).
package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Protocol marks what Beeline puts into the kernel: rtm_protocol of routes and NDA_PROTOCOL of
// neighbours; `ip route` and `ip neigh` show it as "proto 190". The number is free in iproute2's rt_protos
// and in the list of routing daemons in linux/rtnetlink.h (186 to 189 and 192 are taken around it).
const Protocol = 0xBE

// HostPrefix is what the name of every pod device's host end begins with.
const HostPrefix = "bl"

// HostDevice is the host end of a pod's pair.
type HostDevice struct {
	Name  string
	Index int
	MAC   net.HardwareAddr
	// MTU in bytes, without the link-layer header.
	MTU int
	// PodIndex is the index of the other end, in the pod's namespace.
	PodIndex int
	// Namespace is the kernel's id of that namespace in this one (IFLA_LINK_NETNSID), from 0.
	Namespace int
}

// HostDevices lists the host ends of all pod pairs: veth devices with HostPrefix whose other end is in
// another namespace.
func HostDevices() ([]HostDevice, error) {
	links, err := complete(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var hosts []HostDevice
	for _, link := range links {
		if isHostEnd(link) {
			hosts = append(hosts, hostDevice(link))
		}
	}
	return hosts, nil
}

// FindHost returns the host end with the given name. ok is false when there is no such device.
func FindHost(name string) (host HostDevice, ok bool, err error) {
	link, err := hostEnd(name)
	if link == nil || err != nil {
		return HostDevice{}, false, err
	}
	return hostDevice(link), true, nil
}

// PacketsFrom is how many packets have come out of the pod behind the host end with the given name since that was made. ok is false when
// there is no such device, or nothing is known of it.
func PacketsFrom(name string) (packets uint64, ok bool) {
	link, err := hostEnd(name)
	if link == nil || err != nil || link.Attrs().Statistics == nil {
		return 0, false
	}
	return link.Attrs().Statistics.RxPackets, true
}

// hostEnd gives the host end with that name; nil if there is no such device.
func hostEnd(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", name, err)
	}
	if !isHostEnd(link) {
		return nil, nil
	}
	return link, nil
}

func isHostEnd(link netlink.Link) bool {
	attrs := link.Attrs()
	return link.Type() == "veth" && attrs.NetNsID >= 0 && strings.HasPrefix(attrs.Name, HostPrefix)
}

func hostDevice(link netlink.Link) HostDevice {
	attrs := link.Attrs()
	return HostDevice{
		Name: attrs.Name, Index: attrs.Index, MAC: attrs.HardwareAddr, MTU: attrs.MTU, PodIndex: attrs.ParentIndex, Namespace: attrs.NetNsID,
	}
}

// isNotFound tells whether err says that a device does not exist (any more).
func isNotFound(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, unix.ENODEV)
}

// complete runs a dump again while the kernel says that its tables changed under it.
func complete[T any](dump func() ([]T, error)) ([]T, error) {
	const tries = 8
	var err error
	for range tries {
		var found []T
		if found, err = dump(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	return nil, err
}

// prefixOf converts a kernel address with its mask. ok is false for the absent and the malformed.
func prefixOf(ipNet *net.IPNet) (prefix netip.Prefix, ok bool) {
	if ipNet == nil {
		return netip.Prefix{}, false
	}
	addr, ok := addrOf(ipNet.IP)
	ones, bits := ipNet.Mask.Size()
	if !ok || bits != addr.BitLen() {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr, ones), true
}

func addrOf(ip net.IP) (addr netip.Addr, ok bool) {
	addr, ok = netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

func ipNetOf(prefix netip.Prefix) *net.IPNet {
	addr := prefix.Addr()
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), addr.BitLen())}
}

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
