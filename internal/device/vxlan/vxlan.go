// Package vxlan manages the VXLAN device and the routes through it.
package vxlan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/route"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// Name is the name of the VXLAN device. It is flow-based: each packet carries its remote address, so one device serves all nodes.
const Name = "beeline-vxlan"

// The link-layer addresses of every inner frame, the same on all nodes. MAC is the device's own, so receivers accept the frame;
// SenderMAC differs from it because the kernel drops frames from the device's own address.
var (
	MAC       = net.HardwareAddr{0x02, 0xbe, 0xe1, 0, 0, 0x01}
	SenderMAC = net.HardwareAddr{0x02, 0xbe, 0xe1, 0, 0, 0x02}
)

// The next hops of routes through the device. They exist nowhere: the device does not resolve neighbours, and one next hop for all
// routes needs one neighbour entry.
var (
	nexthopIPv4 = netip.MustParseAddr("169.254.1.1")
	nexthopIPv6 = netip.MustParseAddr("fe80::1")
)

// Overhead returns how many bytes a tunnel to this address adds to a packet: the IP header, 8 of UDP, 8 of VXLAN, 14 of Ethernet.
func Overhead(to netip.Addr) int {
	if to.Is4() {
		return 20 + 8 + 8 + 14
	}
	return 40 + 8 + 8 + 14
}

// Route returns a route through the VXLAN device, whose index is device. The MTU is in bytes.
func Route(prefix netip.Prefix, device, mtu int) route.Route {
	via := nexthopIPv6
	if prefix.Addr().Is4() {
		via = nexthopIPv4
	}
	return route.Route{Prefix: prefix, Via: via, OnLink: via.Is4(), Device: device, MTU: mtu}
}

// PodRoute is Route in route.TunnelTable: for packets from pods only.
func PodRoute(prefix netip.Prefix, device, mtu int) route.Route {
	r := Route(prefix, device, mtu)
	r.Table = route.TunnelTable
	return r
}

// Spec is the desired state of the VXLAN device.
type Spec struct {
	// Port is the UDP port that all nodes of the cluster use.
	Port int
	// MTU of the device in bytes. Routes through it may have a smaller one.
	MTU int
	// Addresses are the node's own, to which the kernel masquerades packets that it sends into the tunnel.
	Addresses []netip.Addr
}

// Errors of Sync; the error that wraps them has the details.
var (
	ErrUnsupported = errors.New("this kernel has no VXLAN devices (CONFIG_VXLAN)")
	ErrConflict    = errors.New("another program uses the name or the port of the VXLAN device")
)

// Sync makes the VXLAN device equal to spec. It returns the device's index and whether it made a new one, also to replace one with
// other fixed attributes; the routes of a replaced device are gone. Before the device is set up, which opens the port, Sync calls
// attach with its index, so that no packet arrives before the programs are attached. A device that cannot be set up stays, down:
// deleting it would trigger the next notification and so the next attempt, without end.
func Sync(spec Spec, attach func(index int) error) (index int, made bool, err error) {
	link, err := netlink.LinkByName(Name)
	switch {
	case rtnl.IsNotFound(err):
		made = true
	case err != nil:
		return 0, false, fmt.Errorf("find device %s: %w", Name, err)
	case link.Type() != "vxlan":
		return 0, false, fmt.Errorf("%w: %s is a device of type %s; delete or rename it", ErrConflict, Name, link.Type())
	case !matches(link, spec):
		if err := netlink.LinkDel(link); err != nil && !rtnl.IsNotFound(err) {
			return 0, false, fmt.Errorf("delete device %s to replace it: %w", Name, err)
		}
		made = true
	}
	if made {
		if link, err = add(spec); err != nil {
			return 0, false, err
		}
	}
	if err := configure(link, spec, attach); err != nil {
		return 0, false, err
	}
	return link.Attrs().Index, made, nil
}

// Remove deletes the VXLAN device and reports whether there was one. It keeps a device of another type.
func Remove() (removed bool, err error) { return rtnl.Remove(Name, "vxlan") }

// matches reports whether the attributes that are fixed at creation match.
func matches(link netlink.Link, spec Spec) bool {
	v, ok := link.(*netlink.Vxlan)
	return ok && v.FlowBased && !v.Learning && !v.GBP && !v.UDP6ZeroCSumRx && v.Port == spec.Port
}

func add(spec Spec) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = Name, spec.MTU, MAC
	err := netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, FlowBased: true, Port: spec.Port})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, ErrUnsupported
	case errors.Is(err, unix.EEXIST):
		return nil, portTaken(spec.Port)
	case err != nil:
		return nil, fmt.Errorf("create device %s: %w", Name, err)
	}
	link, err := netlink.LinkByName(Name)
	if err != nil {
		return nil, fmt.Errorf("find device %s after its creation: %w", Name, err)
	}
	return link, nil
}

// configure sets the attributes that can change. The kernel opens the port when the device is set up.
func configure(link netlink.Link, spec Spec, attach func(index int) error) error {
	attrs := link.Attrs()
	if attrs.MTU != spec.MTU {
		if err := netlink.LinkSetMTU(link, spec.MTU); err != nil {
			return fmt.Errorf("set MTU of %s to %d: %w", Name, spec.MTU, err)
		}
	}
	if attrs.HardwareAddr.String() != MAC.String() {
		if err := netlink.LinkSetHardwareAddr(link, MAC); err != nil {
			return fmt.Errorf("set address of %s: %w", Name, err)
		}
	}
	if attrs.RawFlags&unix.IFF_NOARP == 0 {
		if err := netlink.LinkSetARPOff(link); err != nil {
			return fmt.Errorf("disable ARP on %s: %w", Name, err)
		}
	}
	if err := sysctl.SetDevice("ipv6", Name, "addr_gen_mode=1", "accept_ra=0", "disable_ipv6=0"); err != nil {
		return err
	}
	if attrs.Flags&net.FlagUp == 0 {
		if err := attach(attrs.Index); err != nil {
			return err
		}
		err := netlink.LinkSetUp(link)
		if errors.Is(err, unix.EADDRINUSE) {
			return portTaken(spec.Port)
		}
		if err != nil {
			return fmt.Errorf("set %s up: %w", Name, err)
		}
	}
	return rtnl.SetAddresses(link, slices.DeleteFunc(slices.Clone(spec.Addresses), func(a netip.Addr) bool { return a.Is6() && !sysctl.DeviceHasIPv6(Name) }))
}

// portTaken names the VXLAN devices that use the port, or reports that another program does.
func portTaken(port int) error {
	links, err := rtnl.Dump(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("%w: UDP port %d is in use (and list devices: %w)", ErrConflict, port, err)
	}
	var names []string
	for _, link := range links {
		if v, ok := link.(*netlink.Vxlan); ok && v.Name != Name && v.Port == port {
			names = append(names, v.Name)
		}
	}
	holder := "another program"
	if len(names) > 0 {
		holder = "device " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: UDP port %d is in use by %s; stop that, or give all nodes another --tunnel-port", ErrConflict, port, holder)
}
