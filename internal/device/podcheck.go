package device

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CheckPod verifies that the interface ifName in the namespace at path netns is as ConfigurePod leaves it
// and returns an error that names the first difference. What others have added is no difference.
func CheckPod(netns, ifName string, cfg PodConfig) error {
	return ns.WithNetNSPath(netns, func(ns.NetNS) error {
		link, err := netlink.LinkByName(ifName)
		if err != nil {
			return fmt.Errorf("find %s in the pod: %w", ifName, err)
		}
		for _, check := range []func(netlink.Link, PodConfig) error{checkLink, checkSettings, checkAddresses, checkGateways} {
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

func checkSettings(link netlink.Link, cfg PodConfig) error {
	if !cfg.hasIPv6() && !hasIPv6(link.Attrs().Name) {
		return nil
	}
	for _, s := range podSettings(cfg) {
		key := "net/ipv6/conf/" + link.Attrs().Name + "/" + s.key
		content, err := os.ReadFile(filepath.Join("/proc/sys", key))
		if err != nil {
			return fmt.Errorf("read sysctl %s: %w", key, err)
		}
		if value := strings.TrimSpace(string(content)); value != s.value {
			return fmt.Errorf("sysctl %s is %s, not %s", key, value, s.value)
		}
	}
	return nil
}

func checkAddresses(link netlink.Link, cfg PodConfig) error {
	list, err := complete(func() ([]netlink.Addr, error) { return netlink.AddrList(link, unix.AF_UNSPEC) })
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, want := range cfg.Addresses {
		if !slices.ContainsFunc(list, func(a netlink.Addr) bool {
			prefix, ok := prefixOf(a.IPNet)
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
		entries, err := dumpNeighbours(familyOf(gateway), index)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(entries, func(n neighbour) bool {
			return n.addr == gateway && n.state&netlink.NUD_PERMANENT != 0 && bytes.Equal(n.mac, cfg.HostMAC)
		}) {
			return fmt.Errorf("the permanent neighbour entry %s with %s is missing", gateway, cfg.HostMAC)
		}
		if err := checkRoutes(index, gateway); err != nil {
			return err
		}
	}
	return nil
}

func checkRoutes(index int, gateway netip.Addr) error {
	list, err := complete(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(familyOf(gateway), &netlink.Route{LinkIndex: index, Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	for _, want := range gatewayRoutes(index, gateway) {
		wantDst, _ := prefixOf(want.Dst)
		if !slices.ContainsFunc(list, func(r netlink.Route) bool {
			dst, ok := prefixOf(r.Dst)
			// The kernel may leave out the destination of a default route.
			return (ok && dst == wantDst || r.Dst == nil && wantDst.Bits() == 0) && r.Gw.Equal(want.Gw)
		}) {
			return fmt.Errorf("the route %s is missing", want)
		}
	}
	return nil
}
