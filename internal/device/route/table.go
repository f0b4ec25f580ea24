package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device/rtnl"
)

// Table is a copy of the routes of table main, TunnelTable and the tables of Sources, of both families. A node of a large cluster has 10,000, so callers
// share one copy, and only the needed attributes are decoded.
type Table struct{ all []listed }

// listed is one route of the kernel.
type listed struct {
	// Route is the route of Beeline that would create it.
	Route
	protocol, kind uint8
	metric         uint32
	// hops are the devices of a route with several next hops.
	hops []int
}

func (r *listed) ours() bool { return r.protocol == rtnl.Protocol }

// Read reads the routes; expected is their approximate number.
func Read(expected int) (Table, error) {
	all, err := rtnl.Dump(func() (all []listed, err error) {
		all = make([]listed, 0, expected+expected/8)
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			if all, err = appendFamily(all, family); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
	if err != nil {
		return Table{}, fmt.Errorf("list routes: %w", err)
	}
	return Table{all}, nil
}

func appendFamily(all []listed, family uint8) ([]listed, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family}})
	var malformed error
	err := request.ExecuteIter(unix.NETLINK_ROUTE, 0, func(message []byte) bool {
		r, wanted, err := parse(message, family)
		if err != nil {
			malformed = err
			return false
		}
		if wanted {
			all = append(all, r)
		}
		return true
	})
	return all, errors.Join(err, malformed)
}

// DeviceOf returns the index of a route's device from an RTM_NEWROUTE or RTM_DELROUTE message.
func DeviceOf(message []byte, family uint8) (device int, err error) {
	r, _, err := parse(message, family)
	return r.Device, err
}

// parse reads an RTM_NEWROUTE message; wanted is false for a route of another family or table, and for a clone of another route.
func parse(message []byte, family uint8) (r listed, wanted bool, err error) {
	if len(message) < unix.SizeofRtMsg {
		return r, false, rtnl.ErrMalformed
	}
	m := nl.DeserializeRtMsg(message)
	if m.Family != family || m.Flags&unix.RTM_F_CLONED != 0 {
		return r, false, nil
	}
	table := uint32(m.Table)
	r.protocol, r.kind = m.Protocol, m.Type
	r.Unreachable = m.Type == unix.RTN_UNREACHABLE
	r.OnLink = m.Flags&unix.RTNH_F_ONLINK != 0 && family == unix.AF_INET
	destination := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		destination = netip.IPv6Unspecified()
	}
	err = rtnl.EachAttribute(message[unix.SizeofRtMsg:], func(kind uint16, value []byte) error {
		switch kind {
		case unix.RTA_DST:
			return rtnl.ReadAddress(value, &destination)
		case unix.RTA_GATEWAY:
			return rtnl.ReadAddress(value, &r.Via)
		case unix.RTA_PREFSRC:
			return rtnl.ReadAddress(value, &r.Source)
		case unix.RTA_OIF:
			var index uint32
			err := rtnl.ReadNumber(value, &index)
			r.Device = int(index)
			return err
		case unix.RTA_PRIORITY:
			return rtnl.ReadNumber(value, &r.metric)
		case unix.RTA_TABLE:
			return rtnl.ReadNumber(value, &table)
		case unix.RTA_METRICS:
			return r.parseMetrics(value)
		case unix.RTA_MULTIPATH:
			return r.parseHops(value)
		}
		return nil
	})
	switch {
	case table == unix.RT_TABLE_MAIN:
	case table == TunnelTable || isSourceTable(int(table)):
		r.Table = int(table)
	default:
		return r, false, err
	}
	r.Prefix = netip.PrefixFrom(destination, int(m.Dst_len))
	return r, r.Prefix.IsValid(), err // an IPv4-mapped prefix is invalid, and never Beeline's
}

// parseMetrics reads the MTU among a route's metrics.
func (r *listed) parseMetrics(metrics []byte) error {
	return rtnl.EachAttribute(metrics, func(kind uint16, value []byte) error {
		if kind != unix.RTAX_MTU {
			return nil
		}
		var mtu uint32
		err := rtnl.ReadNumber(value, &mtu)
		r.MTU = int(mtu)
		return err
	})
}

// parseHops reads the devices of several next hops: struct rtnexthop is its length, two bytes, and the device's index.
func (r *listed) parseHops(value []byte) error {
	for len(value) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(value))
		if length < unix.SizeofRtNexthop || length > len(value) {
			return rtnl.ErrMalformed
		}
		r.hops = append(r.hops, int(binary.NativeEndian.Uint32(value[4:])))
		value = value[min(len(value), rtnl.Align(length)):]
	}
	return nil
}

// DefaultDevice returns the index of the device of the best default route in table main, IPv4 before IPv6; 0 without one.
func (t Table) DefaultDevice() int {
	var best *listed
	for _, r := range t.defaults() {
		if best == nil || r.Prefix.Addr().Is4() == best.Prefix.Addr().Is4() && r.metric < best.metric {
			best = &r
		}
	}
	switch {
	case best == nil:
		return 0
	case len(best.hops) > 0:
		return best.hops[0]
	}
	return best.Device
}

// DefaultDevices returns the indexes of the devices of all default routes in table main, of both families and with all next hops.
func (t Table) DefaultDevices() (all []int) {
	for _, r := range t.defaults() {
		all = append(append(all, r.Device), r.hops...)
	}
	return all
}

// defaults are the default routes of table main, of both families, IPv4 first.
func (t Table) defaults() (all []listed) {
	for _, r := range t.all {
		if r.Table == 0 && r.Prefix.Bits() == 0 && r.kind == unix.RTN_UNICAST && (r.Device != 0 || len(r.hops) > 0) {
			all = append(all, r)
		}
	}
	return all
}

// ours are Beeline's routes.
func (t Table) ours() map[key]*listed { return t.oursIn(func(int) bool { return true }) }

// oursIn are Beeline's routes in some tables.
func (t Table) oursIn(in func(table int) bool) map[key]*listed {
	ours := map[key]*listed{}
	if in(0) {
		ours = make(map[key]*listed, len(t.all))
	}
	for i := range t.all {
		if r := &t.all[i]; r.ours() && in(r.Table) {
			ours[r.normal().key()] = r
		}
	}
	return ours
}
