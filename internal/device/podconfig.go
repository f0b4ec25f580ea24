package device

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PodConfig is the network of one pod interface.
type PodConfig struct {
	// MTU in bytes; 0 leaves it as it is, and CheckPod does not look at it.
	MTU int
	// Addresses are host prefixes (/32, /128), at most one of each family.
	Addresses []netip.Prefix
	// Gateways are the static next hops, one of each family in Addresses.
	Gateways []netip.Addr
	// HostMAC is the link-layer address of the host end, the neighbour entry of every gateway.
	HostMAC net.HardwareAddr
}

func (c PodConfig) hasIPv6() bool {
	return slices.ContainsFunc(c.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// ConfigurePod brings up loopback and the interface ifName in the network namespace at path netns: MTU,
// addresses, for each gateway a permanent neighbour entry, a link-scoped route and a default route through
// it. IPv6 is enabled on the interface only if it gets an IPv6 address, without router advertisements and
// without duplicate address detection: addresses work at once. On error the interface is left half
// configured; deleting the pair undoes everything but loopback.
func ConfigurePod(netns, ifName string, cfg PodConfig) error {
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
		if err := setDevice("ipv6", ifName, podSettings(cfg)...); err != nil {
			return err
		}
		for _, prefix := range cfg.Addresses {
			if err := netlink.AddrAdd(link, podAddress(prefix)); err != nil {
				return fmt.Errorf("add address %s to %s in the pod: %w", prefix, ifName, err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s in the pod up: %w", ifName, err)
		}
		for _, gateway := range cfg.Gateways {
			if err := addGateway(link.Attrs().Index, gateway, cfg.HostMAC); err != nil {
				return fmt.Errorf("in the pod: %w", err)
			}
		}
		return nil
	})
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

func podSettings(cfg PodConfig) []setting {
	if !cfg.hasIPv6() {
		return []setting{{"disable_ipv6", "1"}}
	}
	return []setting{{"accept_ra", "0"}, {"accept_dad", "0"}, {"disable_ipv6", "0"}}
}

func podAddress(prefix netip.Prefix) *netlink.Addr {
	address := &netlink.Addr{IPNet: ipNetOf(prefix)}
	if prefix.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	return address
}

func addGateway(index int, gateway netip.Addr, mac net.HardwareAddr) error {
	if err := setGateway(index, gateway, mac); err != nil {
		return err
	}
	for _, route := range gatewayRoutes(index, gateway) {
		if err := netlink.RouteAdd(&route); err != nil {
			return fmt.Errorf("add route %s: %w", route, err)
		}
	}
	return nil
}

// gatewayRoutes are the routes of the pod in the order in which the kernel accepts them: the gateway is
// on the link, everything else is behind it.
func gatewayRoutes(index int, gateway netip.Addr) []netlink.Route {
	host := netip.PrefixFrom(gateway, gateway.BitLen())
	unspecified := netip.IPv6Unspecified()
	if gateway.Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	return []netlink.Route{
		{LinkIndex: index, Dst: ipNetOf(host), Scope: netlink.SCOPE_LINK, Table: unix.RT_TABLE_MAIN},
		{LinkIndex: index, Dst: ipNetOf(netip.PrefixFrom(unspecified, 0)), Gw: gateway.AsSlice(), Table: unix.RT_TABLE_MAIN},
	}
}
