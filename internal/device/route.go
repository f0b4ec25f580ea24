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

// SyncRoutes is Sync with the routes of now.
func SyncRoutes(desired []Route) (changed int, err error) {
	routes, err := ReadRoutes(len(desired))
	if err != nil {
		return 0, err
	}
	return routes.Sync(desired)
}

// Sync makes the routes with Protocol in both tables equal to desired, for both families, and returns
// how many it added, replaced or deleted. Routes of others are neither changed nor deleted: one with the
// same prefix and metric stays, and ErrForeignRoute is among the errors. A route that cannot be set does not
// keep the others from being set. Routes are replaced in place, so a prefix is never without one.
func (r Routes) Sync(desired []Route) (changed int, err error) {
	var errs []error
	wanted := make(map[routeKey]int, len(desired))
	right, other := make([]bool, len(desired)), make([]bool, len(desired)) // what is there is as desired, or is ours and different
	for i, route := range desired {
		key := route.normal().key()
		if _, twice := wanted[key]; twice {
			errs = append(errs, fmt.Errorf("set route %s: the prefix is wanted twice", key.prefix))
			right[i] = true // the first one has it
			continue
		}
		wanted[key] = i
	}
	var over []Route
	for n := range r.all {
		if !r.all[n].ours() {
			continue
		}
		present := r.all[n].normal()
		if i, ok := wanted[present.key()]; ok {
			right[i] = right[i] || present == desired[i].normal()
			other[i] = true
		} else {
			over = append(over, present)
		}
	}
	try := func(change func(Route) error, route Route) {
		if err := change(route); err != nil {
			errs = append(errs, err)
			return
		}
		changed++
	}
	for i, route := range desired {
		switch {
		case right[i]:
		case other[i]:
			try(replaceRoute, route)
		default:
			try(AddRoute, route)
		}
	}
	for _, route := range over {
		try(DelRoute, route)
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

// replaceRoute sets a route in the place of one of ours.
func replaceRoute(route Route) error {
	if err := netlink.RouteReplace(route.normal().kernel()); err != nil {
		return fmt.Errorf("replace route %s: %w", route.Prefix.Masked(), err)
	}
	return nil
}

func replaceOurs(route Route) error {
	present, err := ReadRoutes(0)
	if err != nil {
		return err
	}
	if _, ours := present.ours()[route.key()]; !ours {
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
