package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TunnelName is the name of the VXLAN device, the one for all other nodes: each packet says which it is for.
const TunnelName = "beeline-vxlan"

// The link-layer addresses of every frame inside a tunnel, the same on all nodes. Receivers take it for theirs
// because TunnelMAC is their device's; the kernel refuses frames from the device's own address, so they are from another.
var (
	TunnelMAC       = net.HardwareAddr{0x02, 0xbe, 0xe1, 0, 0, 0x01}
	TunnelSenderMAC = net.HardwareAddr{0x02, 0xbe, 0xe1, 0, 0, 0x02}
)

// The next hops of routes through the tunnel device. Nobody has them: the device asks for no link-layer
// addresses, and one next hop for all keeps the kernel at one neighbour.
var (
	tunnelHopIPv4 = netip.MustParseAddr("169.254.1.1")
	tunnelHopIPv6 = netip.MustParseAddr("fe80::1")
)

// TunnelOverhead is how many bytes a tunnel to this address puts around a packet: IP header, 8 of UDP, 8 of
// VXLAN, 14 of Ethernet.
func TunnelOverhead(to netip.Addr) int {
	if to.Is4() {
		return 20 + 8 + 8 + 14
	}
	return 40 + 8 + 8 + 14
}

// TunnelRoute is a route through the tunnel device.
func TunnelRoute(prefix netip.Prefix, device, mtu int) Route {
	via := tunnelHopIPv6
	if prefix.Addr().Is4() {
		via = tunnelHopIPv4
	}
	return Route{Prefix: prefix, Via: via, OnLink: via.Is4(), Device: device, MTU: mtu}
}

// TunnelSpec is what the tunnel device has to be.
type TunnelSpec struct {
	// Port is the UDP port that all nodes of the cluster use.
	Port int
	// MTU of the device in bytes. Routes through it may have a smaller one.
	MTU int
	// Addresses are the node's own: what is masqueraded into a tunnel gets the address of its device.
	Addresses []netip.Addr
}

// Errors of SyncTunnel that say what is in the way. The error that wraps them has the particulars.
var (
	ErrNoVXLAN     = errors.New("this kernel has no VXLAN devices (CONFIG_VXLAN)")
	ErrTunnelTaken = errors.New("somebody else is in the way of the VXLAN device")
)

// SyncTunnel makes the tunnel device be what spec says, and returns its index and whether it made one, also in the
// place of one that was not right. Its routes go with a device that is replaced. Before the device is set up, and the
// port with it, guard is called with its index: nothing comes through a tunnel that guard has not prepared for. A device
// that cannot be set up stays as it is, down: who is told of each change and tries again would be told without end.
func SyncTunnel(spec TunnelSpec, guard func(index int) error) (index int, made bool, err error) {
	link, err := netlink.LinkByName(TunnelName)
	switch {
	case isNotFound(err):
		made = true
	case err != nil:
		return 0, false, fmt.Errorf("find device %s: %w", TunnelName, err)
	case link.Type() != "vxlan":
		return 0, false, fmt.Errorf("%w: %s is a device of type %s; delete or rename it", ErrTunnelTaken, TunnelName, link.Type())
	case !isTunnel(link, spec):
		if err := netlink.LinkDel(link); err != nil && !isNotFound(err) {
			return 0, false, fmt.Errorf("delete device %s that is not as it should be: %w", TunnelName, err)
		}
		made = true
	}
	if made {
		if link, err = addTunnel(spec); err != nil {
			return 0, false, err
		}
	}
	if err := tuneTunnel(link, spec, guard); err != nil {
		return 0, false, err
	}
	return link.Attrs().Index, made, nil
}

// RemoveTunnel deletes the tunnel device and tells whether there was one. A device of another type is not ours.
func RemoveTunnel() (removed bool, err error) {
	link, err := netlink.LinkByName(TunnelName)
	if isNotFound(err) || err == nil && link.Type() != "vxlan" {
		return false, nil
	}
	if err == nil {
		err = netlink.LinkDel(link)
	}
	if isNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete device %s: %w", TunnelName, err)
	}
	return true, nil
}

// isTunnel tells whether what cannot be changed of a device is as it should be.
func isTunnel(link netlink.Link, spec TunnelSpec) bool {
	v, ok := link.(*netlink.Vxlan)
	return ok && v.FlowBased && !v.Learning && !v.GBP && !v.UDP6ZeroCSumRx && v.Port == spec.Port
}

func addTunnel(spec TunnelSpec) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = TunnelName, spec.MTU, TunnelMAC
	err := netlink.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, FlowBased: true, Port: spec.Port})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, ErrNoVXLAN
	case errors.Is(err, unix.EEXIST):
		return nil, portTaken(spec.Port)
	case err != nil:
		return nil, fmt.Errorf("make device %s: %w", TunnelName, err)
	}
	link, err := netlink.LinkByName(TunnelName)
	if err != nil {
		return nil, fmt.Errorf("find the device just made: %w", err)
	}
	return link, nil
}

// tuneTunnel sets what can be changed of the device. The kernel opens the port when the device is set up.
func tuneTunnel(link netlink.Link, spec TunnelSpec, guard func(index int) error) error {
	attrs := link.Attrs()
	if err := setMTU(link, spec.MTU); err != nil {
		return err
	}
	if attrs.HardwareAddr.String() != TunnelMAC.String() {
		if err := netlink.LinkSetHardwareAddr(link, TunnelMAC); err != nil {
			return fmt.Errorf("set address of %s: %w", TunnelName, err)
		}
	}
	if attrs.RawFlags&unix.IFF_NOARP == 0 {
		if err := netlink.LinkSetARPOff(link); err != nil {
			return fmt.Errorf("keep %s from asking for addresses: %w", TunnelName, err)
		}
	}
	if err := setDevice("ipv6", TunnelName, setting{"addr_gen_mode", "1"}, setting{"accept_ra", "0"}, setting{"disable_ipv6", "0"}); err != nil {
		return err
	}
	if attrs.Flags&net.FlagUp == 0 {
		if err := guard(attrs.Index); err != nil {
			return err
		}
		err := netlink.LinkSetUp(link)
		if errors.Is(err, unix.EADDRINUSE) {
			return portTaken(spec.Port)
		}
		if err != nil {
			return fmt.Errorf("set %s up: %w", TunnelName, err)
		}
	}
	return setTunnelAddresses(link, spec.Addresses)
}

// setTunnelAddresses gives the device these addresses and no others, without a route to any prefix.
func setTunnelAddresses(link netlink.Link, wanted []netip.Addr) error {
	list, err := complete(func() ([]netlink.Addr, error) { return netlink.AddrList(link, unix.AF_UNSPEC) })
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", TunnelName, err)
	}
	left := slices.Clone(wanted)
	for _, present := range list {
		p, ok := prefixOf(present.IPNet)
		if at := slices.Index(left, p.Addr()); ok && p.IsSingleIP() && at >= 0 {
			left = slices.Delete(left, at, at+1)
			continue
		}
		if ok && p.Addr().IsLinkLocalUnicast() && p.Addr().Is6() {
			continue // the kernel's own
		}
		if err := netlink.AddrDel(link, &present); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s from %s: %w", p, TunnelName, err)
		}
	}
	for _, a := range left {
		if a.Is6() && !hasIPv6(TunnelName) {
			continue
		}
		address := &netlink.Addr{IPNet: ipNetOf(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NOPREFIXROUTE}
		if a.Is6() {
			address.Flags |= unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("add address %s to %s: %w", a, TunnelName, err)
		}
	}
	return nil
}

// portTaken names the VXLAN devices that hold the port, or says that another program does.
func portTaken(port int) error {
	links, err := complete(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("%w: UDP port %d is in use (and devices cannot be listed: %w)", ErrTunnelTaken, port, err)
	}
	var names []string
	for _, link := range links {
		if v, ok := link.(*netlink.Vxlan); ok && v.Name != TunnelName && v.Port == port {
			names = append(names, v.Name)
		}
	}
	holder := "another program"
	if len(names) > 0 {
		holder = "device " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%w: UDP port %d is in use by %s; stop that, or give all nodes another --tunnel-port", ErrTunnelTaken, port, holder)
}
