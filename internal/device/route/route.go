// Package route reads and writes routes and routing rules.
package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Route is one of Beeline's routes (rtnl.Protocol) in table main, TunnelTable or that of a Source. A prefix has at most one in each table.
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
	// Unreachable rejects packets to the prefix without a longer match with "host unreachable". All other fields but Table are
	// ignored then.
	Unreachable bool
	// OnLink accepts an IPv4 Via that no address of Device covers (RTNH_F_ONLINK).
	OnLink bool
	// Table is 0 for table main, TunnelTable, or that of a Source.
	Table int
}

// key identifies a route.
type key struct {
	prefix netip.Prefix
	table  int
}

func (r Route) key() key { return key{r.Prefix, r.Table} }

// ErrForeign reports a route of another program with the same prefix and metric.
var ErrForeign = errors.New("another program's route has this prefix")

// Sync reads the kernel's routes and calls Table.Sync.
func Sync(desired []Route) (changed int, err error) {
	routes, err := Read(len(desired))
	if err != nil {
		return 0, err
	}
	return routes.Sync(desired)
}

// Sync makes Beeline's routes in table main and TunnelTable, of both families, equal to desired and returns how many it added, replaced or deleted. It never
// changes routes of others: where one has the same prefix and metric, the error includes ErrForeign. A route that cannot be set does
// not stop the others. Routes are replaced in place, so a prefix is never without one.
func (t Table) Sync(desired []Route) (changed int, err error) {
	return t.sync(desired, func(table int) bool { return !isSourceTable(table) })
}

// sync is Sync for some tables.
func (t Table) sync(desired []Route, in func(table int) bool) (changed int, err error) {
	var errs []error
	try := func(change func(Route) error, r Route) {
		if err := change(r); err != nil {
			errs = append(errs, err)
			return
		}
		changed++
	}
	present := t.oursIn(in)
	for _, r := range desired {
		r = r.normal()
		was, known := present[r.key()]
		present[r.key()] = nil // done
		switch {
		case !known:
			try(Add, r)
		case was == nil:
			errs = append(errs, fmt.Errorf("set route %s: the prefix is wanted twice", r.Prefix))
		case was.normal() != r:
			try(replace, r)
		}
	}
	for _, stale := range present {
		if stale != nil {
			try(Delete, stale.Route)
		}
	}
	return changed, errors.Join(errs...)
}

// Add sets one route and replaces Beeline's own with the same prefix. It lists the kernel's routes only if the prefix has a route: the
// error is ErrForeign if that is not Beeline's.
func Add(r Route) error {
	r = r.normal()
	err := netlink.RouteAdd(r.kernel())
	if errors.Is(err, unix.EEXIST) {
		err = replaceOurs(r)
	}
	if err != nil {
		return fmt.Errorf("set route %s: %w", r.Prefix, err)
	}
	return nil
}

// replace replaces Beeline's route with the same prefix.
func replace(r Route) error {
	if err := netlink.RouteReplace(r.normal().kernel()); err != nil {
		return fmt.Errorf("replace route %s: %w", r.Prefix.Masked(), err)
	}
	return nil
}

func replaceOurs(r Route) error {
	present, err := Read(0)
	if err != nil {
		return err
	}
	if present.ours()[r.key()] == nil {
		return ErrForeign
	}
	return netlink.RouteReplace(r.kernel())
}

// Delete deletes one of Beeline's routes by prefix, next hop and device. A route that does not exist, or is not Beeline's, is no error.
func Delete(r Route) error {
	r = r.normal()
	r.Source, r.MTU = netip.Addr{}, 0 // neither identifies a route
	err := netlink.RouteDel(r.kernel())
	if err == nil || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("delete route %s: %w", r.Prefix, err)
}

// normal returns the one form of routes that are equal to the kernel.
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
	k := &netlink.Route{
		Dst: rtnl.IPNet(r.Prefix), LinkIndex: r.Device, Table: unix.RT_TABLE_MAIN, Protocol: rtnl.Protocol,
		Type: unix.RTN_UNICAST, MTU: r.MTU,
	}
	if r.Table != 0 {
		k.Table = r.Table
	}
	if r.Unreachable {
		k.Type = unix.RTN_UNREACHABLE
		return k
	}
	if r.OnLink {
		k.Flags = int(netlink.FLAG_ONLINK)
	}
	if r.Via.IsValid() {
		k.Gw = r.Via.AsSlice()
	} else {
		k.Scope = netlink.SCOPE_LINK
	}
	if r.Source.IsValid() {
		k.Src = r.Source.AsSlice()
	}
	return k
}
