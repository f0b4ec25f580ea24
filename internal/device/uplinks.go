package device

import (
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
)

// FindMoreUplinks finds the devices besides the main one that lead to the world: those of that name, or, with none or "auto", those of
// default routes. A device that is not there or is down is none; missing names those that were asked for.
func FindMoreUplinks(main Uplink, names []string, routes Routes) (more []Uplink, missing []string, err error) {
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
		routed := routes.defaultDevices()
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

// defaultDevices gives the devices of all default routes of table main, of both families and with all of their next hops.
func (r Routes) defaultDevices() (all []int) {
	for _, route := range r.defaultRoutes() {
		all = append(append(all, route.Device), route.hops...)
	}
	return all
}
