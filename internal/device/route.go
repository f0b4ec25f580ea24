package device

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is one route in table main or TunnelTable that belongs to Beeline: the kernel keeps Protocol with it. A
// prefix has at most one in each table.
type Route struct {
	Prefix netip.Prefix
	// Via is the next hop; the zero value means that the prefix is on the link.
	Via netip.Addr
	// Device is the index of the outgoing device.
	Device int
	// Source is the preferred source address of the node's own traffic; the zero value lets the kernel choose.
	Source netip.Addr
	// MTU of the path in bytes; 0 means the device's.
	MTU int
	// Unreachable answers packets to the prefix that have no longer match with "host unreachable" instead of
	// sending them anywhere. Only Prefix counts then.
	Unreachable bool
	// OnLink takes Via, of IPv4, for a next hop on the link of Device although no address there says so.
	OnLink bool
	// Table is 0 for table main, or TunnelTable.
	Table int
}

// routeKey is what there is one route for.
type routeKey struct {
	prefix netip.Prefix
	table  int
}

func (r Route) key() routeKey { return routeKey{r.Prefix, r.Table} }

// ErrForeignRoute says that the place of a route is taken by one that Beeline did not make.
var ErrForeignRoute = errors.New("somebody else's route is in the way")

// SyncRoutes makes the routes with Protocol in both tables equal to desired, for both families, and returns
// how many it added, replaced or deleted. Routes of others are neither changed nor deleted: one with the
// same prefix and metric stays, and ErrForeignRoute is among the errors. A route that cannot be set does not
// keep the others from being set. Routes are replaced in place, so a prefix is never without one.
func SyncRoutes(desired []Route) (changed int, err error) {
	present, err := ourRoutes()
	if err != nil {
		return 0, err
	}
	wanted := make(map[routeKey]bool, len(desired))
	var errs []error
	for _, route := range desired {
		route = route.normal()
		if wanted[route.key()] {
			errs = append(errs, fmt.Errorf("set route %s: the prefix is wanted twice", route.Prefix))
			continue
		}
		wanted[route.key()] = true
		if old, ok := present[route.key()]; ok && old == route {
			continue
		}
		if err := AddRoute(route); err != nil {
			errs = append(errs, err)
			continue
		}
		changed++
	}
	for key, route := range present {
		if wanted[key] {
			continue
		}
		if err := DelRoute(route); err != nil {
			errs = append(errs, err)
			continue
		}
		changed++
	}
	return changed, errors.Join(errs...)
}

// AddRoute sets one route, replacing one of ours with the same prefix. Only if there is a route with this
// prefix already are the kernel's routes listed: ErrForeignRoute if it is not ours.
func AddRoute(route Route) error {
	route = route.normal()
	err := netlink.RouteAdd(route.kernel())
	if errors.Is(err, unix.EEXIST) {
		err = replaceOurs(route)
	}
	if err != nil {
		return fmt.Errorf("set route %s: %w", route.Prefix, err)
	}
	return nil
}

func replaceOurs(route Route) error {
	present, err := ourRoutes()
	if err != nil {
		return err
	}
	if _, ours := present[route.key()]; !ours {
		return ErrForeignRoute
	}
	return netlink.RouteReplace(route.kernel())
}

// DelRoute deletes one route of ours, found by prefix, next hop and device. One that does not exist, or is
// not ours, is no error.
func DelRoute(route Route) error {
	route = route.normal()
	// Without source and MTU: neither identifies a route.
	route.Source, route.MTU = netip.Addr{}, 0
	err := netlink.RouteDel(route.kernel())
	if err == nil || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("delete route %s: %w", route.Prefix, err)
}

func (r Route) normal() Route {
	r.Prefix = r.Prefix.Masked()
	if r.Unreachable {
		return Route{Prefix: r.Prefix, Unreachable: true, Table: r.Table}
	}
	r.OnLink = r.OnLink && r.Via.Is4()
	if r.Via.IsValid() {
		r.Via = r.Via.Unmap()
	}
	if r.Source.IsValid() {
		r.Source = r.Source.Unmap()
	}
	return r
}

func (r Route) kernel() *netlink.Route {
	route := &netlink.Route{
		Dst: ipNetOf(r.Prefix), LinkIndex: r.Device, Table: unix.RT_TABLE_MAIN, Protocol: Protocol,
		Type: unix.RTN_UNICAST, MTU: r.MTU,
	}
	if r.Table != 0 {
		route.Table = r.Table
	}
	if r.Unreachable {
		route.Type = unix.RTN_UNREACHABLE
		return route
	}
	if r.OnLink {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	if r.Source.IsValid() {
		route.Src = r.Source.AsSlice()
	}
	return route
}

// ourRoutes lists the routes with Protocol in our two tables, both families.
func ourRoutes() (map[routeKey]Route, error) {
	ours := map[routeKey]Route{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := complete(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Protocol: Protocol},
				netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range list {
			prefix, ok := prefixOf(r.Dst)
			if !ok || r.Table != unix.RT_TABLE_MAIN && r.Table != TunnelTable {
				continue
			}
			route := Route{Prefix: prefix}
			if r.Table == TunnelTable {
				route.Table = TunnelTable
			}
			if r.Type == unix.RTN_UNREACHABLE {
				route.Unreachable = true
				ours[route.key()] = route
				continue
			}
			route.Device, route.MTU = r.LinkIndex, r.MTU
			route.OnLink = r.Flags&int(netlink.FLAG_ONLINK) != 0 && prefix.Addr().Is4()
			if via, ok := addrOf(r.Gw); ok {
				route.Via = via
			}
			if source, ok := addrOf(r.Src); ok {
				route.Source = source
			}
			ours[route.key()] = route
		}
	}
	return ours, nil
}
