package device

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/conflict"
	"github.com/beeline-cni/beeline/internal/device/neigh"
	"github.com/beeline-cni/beeline/internal/device/rtnl"
	"github.com/beeline-cni/beeline/internal/device/sysctl"
)

// PodConfig is the network of one pod interface.
type PodConfig struct {
	// MTU in bytes; 0 keeps it as it is, and Check ignores it.
	MTU int
	// Addresses are host prefixes (/32, /128), at most one of each family.
	Addresses []netip.Prefix
	// Gateways are the static next hops, one for each family in Addresses whose default route is not in Routes.
	Gateways []netip.Addr
	// Second says that another interface of the pod has the default routes. Networks are then reached by this one.
	Second   bool
	Networks []netip.Prefix
	// HostMAC is the link-layer address of the host end, to which every gateway resolves.
	HostMAC net.HardwareAddr
	// Routes are those of a macvlan device, in the order in which the kernel takes them.
	Routes []PodRoute
	// Announce tells the hosts of the link which MAC the addresses have.
	Announce bool
}

// PodRoute is a route of a pod by its macvlan device.
type PodRoute struct {
	To netip.Prefix
	// Via is a router; the zero Addr for hosts on the link.
	Via netip.Addr
}

// NextHop returns the next hop of the default route of addr's family; the zero Addr without one.
func (c PodConfig) NextHop(addr netip.Addr) netip.Addr {
	for _, gateway := range c.Gateways {
		if gateway.Is4() == addr.Is4() {
			return gateway
		}
	}
	for _, route := range c.Routes {
		if route.To.Bits() == 0 && route.To.Addr().Is4() == addr.Is4() {
			return route.Via
		}
	}
	return netip.Addr{}
}

// sysctls returns the IPv6 settings of the pod's interface. IPv6 is enabled only for a pod with an IPv6 address, without router
// advertisements and without duplicate address detection: the addresses work at once.
func (c PodConfig) sysctls() []string {
	if !slices.ContainsFunc(c.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return []string{"disable_ipv6=1"}
	}
	return []string{"accept_ra=0", "accept_dad=0", "disable_ipv6=0"}
}

// podEnd configures and checks the pod's end of an Ethernet device. Kinds of devices embed it.
type podEnd struct{}

// Configure implements PodDevices.
func (podEnd) Configure(netns, ifName string, cfg PodConfig) error {
	return ns.WithNetNSPath(netns, func(ns.NetNS) error {
		if err := setUp("lo"); err != nil {
			return err
		}
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", ifName, err)
		}
		if cfg.MTU != 0 {
			if err := netlink.LinkSetMTU(link, cfg.MTU); err != nil {
				return fmt.Errorf("set MTU of %s in the pod to %d: %w", ifName, cfg.MTU, err)
			}
		}
		if err := sysctl.SetDevice("ipv6", ifName, cfg.sysctls()...); err != nil {
			return err
		}
		for _, prefix := range cfg.Addresses {
			if err := netlink.AddrAdd(link, podAddress(prefix)); err != nil {
				return fmt.Errorf("add address %s to %s in the pod: %w", prefix, ifName, err)
			}
		}
		if cfg.Announce {
			// The kernel announces IPv4 addresses when the device is set up. The plugin would not end before the kernel has closed a packet
			// socket, which takes many milliseconds.
			if err := sysctl.SetDevice("ipv4", ifName, "arp_notify=1"); err != nil {
				return err
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s in the pod up: %w", ifName, err)
		}
		for _, gateway := range cfg.Gateways {
			add := func() error { return addGateway(link.Attrs().Index, gateway, cfg.HostMAC) }
			if cfg.Second {
				add = func() error { return addSecond(link.Attrs().Index, gateway, cfg) }
			}
			if err := add(); err != nil {
				return fmt.Errorf("in the pod: %w", err)
			}
		}
		for _, route := range cfg.Routes {
			if err := netlink.RouteAdd(route.on(link.Attrs().Index)); err != nil {
				return fmt.Errorf("add route to %s via %s in the pod: %w", route.To, route.Via, err)
			}
		}
		if !cfg.Announce {
			return nil
		}
		for _, prefix := range cfg.Addresses {
			if prefix.Addr().Is4() {
				continue
			}
			device := conflict.Device{Index: link.Attrs().Index, MAC: link.Attrs().HardwareAddr}
			if err := conflict.Announce(device, prefix.Addr()); err != nil {
				return fmt.Errorf("by %s in the pod: %w", ifName, err)
			}
		}
		return nil
	})
}

// on returns the route by a device.
func (r PodRoute) on(index int) *netlink.Route {
	route := &netlink.Route{LinkIndex: index, Dst: rtnl.IPNet(r.To), Table: unix.RT_TABLE_MAIN}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	return route
}

func setUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s in the pod: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s in the pod up: %w", name, err)
	}
	return nil
}

func podAddress(prefix netip.Prefix) *netlink.Addr {
	address := &netlink.Addr{IPNet: rtnl.IPNet(prefix)}
	if prefix.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	return address
}

func addGateway(index int, gateway netip.Addr, mac net.HardwareAddr) error {
	if err := neigh.SetRouter(index, gateway, mac); err != nil {
		return err
	}
	for _, route := range gatewayRoutes(index, gateway) {
		if err := netlink.RouteAdd(&route); err != nil {
			return fmt.Errorf("add route %s: %w", route, err)
		}
	}
	return nil
}

// gatewayRoutes returns the pod's routes in the order that the kernel requires: the link-scoped one to the gateway, then the default
// route through it.
func gatewayRoutes(index int, gateway netip.Addr) []netlink.Route {
	host := netip.PrefixFrom(gateway, gateway.BitLen())
	unspecified := netip.IPv6Unspecified()
	if gateway.Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	return []netlink.Route{
		{LinkIndex: index, Dst: rtnl.IPNet(host), Scope: netlink.SCOPE_LINK, Table: unix.RT_TABLE_MAIN},
		{LinkIndex: index, Dst: rtnl.IPNet(netip.PrefixFrom(unspecified, 0)), Gw: gateway.AsSlice(), Table: unix.RT_TABLE_MAIN},
	}
}

// Check implements PodDevices.
func (podEnd) Check(netns, ifName string, cfg PodConfig) error {
	return ns.WithNetNSPath(netns, func(ns.NetNS) error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", ifName, err)
		}
		for _, check := range []func(netlink.Link, PodConfig) error{checkLink, checkSysctls, checkAddresses, checkGateways, checkPodRoutes} {
			if err := check(link, cfg); err != nil {
				return fmt.Errorf("check %s in the pod: %w", ifName, err)
			}
		}
		return nil
	})
}

func checkLink(link netlink.Link, cfg PodConfig) error {
	attrs := link.Attrs()
	if attrs.Flags&net.FlagUp == 0 {
		return fmt.Errorf("the device is down")
	}
	if cfg.MTU != 0 && attrs.MTU != cfg.MTU {
		return fmt.Errorf("the MTU is %d, not %d", attrs.MTU, cfg.MTU)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	if lo.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("loopback is down")
	}
	return nil
}

func checkSysctls(link netlink.Link, cfg PodConfig) error {
	name, settings := link.Attrs().Name, cfg.sysctls()
	if len(settings) == 1 && !sysctl.DeviceHasIPv6(name) {
		return nil // IPv6 is disabled, in the pod or in the kernel
	}
	for _, setting := range settings {
		key, want, _ := strings.Cut(setting, "=")
		key = "net/ipv6/conf/" + name + "/" + key
		value, err := sysctl.Get(key)
		if err != nil {
			return err
		}
		if value != want {
			return fmt.Errorf("sysctl %s is %s, not %s", key, value, want)
		}
	}
	return nil
}

func checkAddresses(link netlink.Link, cfg PodConfig) error {
	list, err := rtnl.Dump(func() ([]netlink.Addr, error) { return netlink.AddrList(link, unix.AF_UNSPEC) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, want := range cfg.Addresses {
		if !slices.ContainsFunc(list, func(a netlink.Addr) bool {
			prefix, ok := rtnl.Prefix(a.IPNet)
			return ok && prefix == want
		}) {
			return fmt.Errorf("the address %s is missing", want)
		}
	}
	return nil
}

func checkGateways(link netlink.Link, cfg PodConfig) error {
	index := link.Attrs().Index
	for _, gateway := range cfg.Gateways {
		present, err := neigh.HasPermanent(index, gateway, cfg.HostMAC)
		if err != nil {
			return err
		}
		if !present {
			return fmt.Errorf("the permanent neighbour entry %s with %s is missing", gateway, cfg.HostMAC)
		}
		check := func() error { return checkRoutes(index, gatewayRoutes(index, gateway)) }
		if cfg.Second {
			check = func() error { return checkSecond(index, gateway, cfg) }
		}
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func checkPodRoutes(link netlink.Link, cfg PodConfig) error {
	var routes []netlink.Route
	for _, route := range cfg.Routes {
		routes = append(routes, *route.on(link.Attrs().Index))
	}
	return checkRoutes(link.Attrs().Index, routes)
}

// checkRoutes checks routes by a device, of any family.
func checkRoutes(index int, routes []netlink.Route) error {
	if len(routes) == 0 {
		return nil
	}
	list, err := rtnl.Dump(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(unix.AF_UNSPEC, &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, want := range routes {
		wantDst, _ := rtnl.Prefix(want.Dst)
		if !slices.ContainsFunc(list, func(r netlink.Route) bool {
			dst, ok := rtnl.Prefix(r.Dst)
			// The kernel may leave out the destination of a default route.
			noDst := r.Dst == nil && wantDst.Bits() == 0 && r.Family == rtnl.Family(wantDst.Addr())
			return (ok && dst == wantDst || noDst) && r.Gw.Equal(want.Gw)
		}) {
			return fmt.Errorf("the route %s is missing", want)
		}
	}
	return nil
}
