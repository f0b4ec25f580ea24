package device

import (
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// FindMoreUplinks finds the devices besides the main one that lead to the world: those of that name, or, with none or "auto", those of
// default routes. A device that is not there or is down is none; missing names those that were asked for.
func FindMoreUplinks(main Uplink, names []string) (more []Uplink, missing []string, err error) {
	links, err := complete(netlink.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("list devices: %w", err)
	}
	addresses, err := addressesByDevice()
	if err != nil {
		return nil, nil, err
	}
	auto := len(names) == 0 || slices.Equal(names, []string{"auto"})
	var wanted func(*netlink.LinkAttrs) bool
	if auto {
		routed, err := defaultRouteDevices()
		if err != nil {
			return nil, nil, err
		}
		wanted = func(attrs *netlink.LinkAttrs) bool {
			return slices.Contains(routed, attrs.Index) && attrs.Name != TunnelName && attrs.Flags&net.FlagLoopback == 0
		}
	} else {
		wanted = func(attrs *netlink.LinkAttrs) bool { return slices.Contains(names, attrs.Name) }
	}
	found := map[string]bool{main.Name: true}
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.Flags&net.FlagUp == 0 || attrs.Index == main.Index || !wanted(attrs) {
			continue
		}
		found[attrs.Name] = true
		more = append(more, uplink(link, addresses))
	}
	if !auto {
		missing = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name] })
	}
	return more, missing, nil
}

// defaultRouteDevices gives the devices of all default routes of table main, of both families and with all of their next hops.
func defaultRouteDevices() (all []int, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := complete(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, route := range routes {
			if prefix, ok := prefixOf(route.Dst); ok && prefix.Bits() != 0 || route.Type != unix.RTN_UNICAST {
				continue
			}
			all = append(all, route.LinkIndex)
			for _, hop := range route.MultiPath {
				all = append(all, hop.LinkIndex)
			}
		}
	}
	return all, nil
}
