package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Routes are the routes of table main and of TunnelTable, of both families, as they were at one moment. A node of a large cluster has 10,000,
// so they are read once for all who ask, and only what is asked for is taken from the kernel's messages.
type Routes struct{ all []listedRoute }

// listedRoute is one route of the kernel.
type listedRoute struct {
	// Route is what Beeline would have asked for to get it.
	Route
	protocol, kind uint8
	metric         uint32
	// hops are the devices of the next hops, where there are several.
	hops []int
}

func (r *listedRoute) ours() bool { return r.protocol == Protocol }

// ReadRoutes reads them. There are about so many.
func ReadRoutes(about int) (Routes, error) {
	all, err := complete(func() (all []listedRoute, err error) {
		all = make([]listedRoute, 0, about+about/8)
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			if all, err = appendRoutes(all, family); err != nil {
				return nil, err
			}
		}
		return all, nil
	})
	if err != nil {
		return Routes{}, fmt.Errorf("list routes: %w", err)
	}
	return Routes{all}, nil
}

// appendRoutes reads the routes of a family.
func appendRoutes(all []listedRoute, family uint8) ([]listedRoute, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family}})
	var malformed error
	err := request.ExecuteIter(unix.NETLINK_ROUTE, 0, func(message []byte) bool {
		route, wanted, err := readRoute(message, family)
		if err != nil {
			malformed = err
			return false
		}
		if wanted {
			all = append(all, route)
		}
		return true
	})
	return all, errors.Join(err, malformed)
}

var errMalformed = errors.New("the kernel's message is malformed")

// readRoute reads a message; wanted is false for a route of another family or table, and for one that the kernel made of another.
func readRoute(message []byte, family uint8) (route listedRoute, wanted bool, err error) {
	if len(message) < unix.SizeofRtMsg {
		return route, false, errMalformed
	}
	m := nl.DeserializeRtMsg(message)
	if m.Family != family || m.Flags&unix.RTM_F_CLONED != 0 {
		return route, false, nil
	}
	table := uint32(m.Table)
	route.protocol, route.kind = m.Protocol, m.Type
	route.Unreachable = m.Type == unix.RTN_UNREACHABLE
	route.OnLink = m.Flags&unix.RTNH_F_ONLINK != 0 && family == unix.AF_INET
	destination := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		destination = netip.IPv6Unspecified()
	}
	err = eachAttribute(message[unix.SizeofRtMsg:], func(kind uint16, value []byte) error {
		switch kind {
		case unix.RTA_DST:
			return readAddress(value, &destination)
		case unix.RTA_GATEWAY:
			return readAddress(value, &route.Via)
		case unix.RTA_PREFSRC:
			return readAddress(value, &route.Source)
		case unix.RTA_OIF:
			var index uint32
			err := readNumber(value, &index)
			route.Device = int(index)
			return err
		case unix.RTA_PRIORITY:
			return readNumber(value, &route.metric)
		case unix.RTA_TABLE:
			return readNumber(value, &table)
		case unix.RTA_METRICS:
			return route.readMetrics(value)
		case unix.RTA_MULTIPATH:
			return route.readHops(value)
		}
		return nil
	})
	switch table {
	case unix.RT_TABLE_MAIN:
	case TunnelTable:
		route.Table = TunnelTable
	default:
		return route, false, err
	}
	route.Prefix = netip.PrefixFrom(destination, int(m.Dst_len))
	return route, route.Prefix.IsValid(), err // IPv4 mapped into IPv6 is no prefix of ours, nor in one
}

// readMetrics reads the MTU among a route's metrics.
func (r *listedRoute) readMetrics(metrics []byte) error {
	return eachAttribute(metrics, func(kind uint16, value []byte) error {
		if kind != unix.RTAX_MTU {
			return nil
		}
		var mtu uint32
		err := readNumber(value, &mtu)
		r.MTU = int(mtu)
		return err
	})
}

// readHops reads the devices of several next hops: struct rtnexthop is its length, two bytes, and the device's index.
func (r *listedRoute) readHops(value []byte) error {
	for len(value) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(value))
		if length < unix.SizeofRtNexthop || length > len(value) {
			return errMalformed
		}
		r.hops = append(r.hops, int(binary.NativeEndian.Uint32(value[4:])))
		value = value[min(len(value), aligned(length)):]
	}
	return nil
}

// eachAttribute gives the attributes of a message: length, kind, value, each at a multiple of four bytes.
func eachAttribute(attributes []byte, visit func(kind uint16, value []byte) error) error {
	for len(attributes) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(attributes))
		if length < unix.SizeofRtAttr || length > len(attributes) {
			return errMalformed
		}
		if err := visit(binary.NativeEndian.Uint16(attributes[2:])&^unix.NLA_F_NESTED, attributes[unix.SizeofRtAttr:length]); err != nil {
			return err
		}
		attributes = attributes[min(len(attributes), aligned(length)):]
	}
	return nil
}

func aligned(length int) int { return (length + unix.RTA_ALIGNTO - 1) &^ (unix.RTA_ALIGNTO - 1) }

func readAddress(value []byte, to *netip.Addr) error {
	addr, ok := addrOf(value)
	if !ok {
		return errMalformed
	}
	*to = addr
	return nil
}

func readNumber(value []byte, to *uint32) error {
	if len(value) < 4 {
		return errMalformed
	}
	*to = binary.NativeEndian.Uint32(value)
	return nil
}

// defaultRoutes are those of table main, of both families, IPv4 first.
func (r Routes) defaultRoutes() (all []listedRoute) {
	for _, route := range r.all {
		if route.Table == 0 && route.Prefix.Bits() == 0 && route.kind == unix.RTN_UNICAST && (route.Device != 0 || len(route.hops) > 0) {
			all = append(all, route)
		}
	}
	return all
}

// ours are Beeline's.
func (r Routes) ours() map[routeKey]Route {
	ours := map[routeKey]Route{}
	for i := range r.all {
		if route := &r.all[i]; route.ours() {
			ours[route.key()] = route.normal()
		}
	}
	return ours
}
