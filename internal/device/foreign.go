package device

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ForeignRoute is a route of table main that Beeline did not make.
type ForeignRoute struct {
	Prefix netip.Prefix
	// Device is the name of the outgoing device, Index its index; empty and 0 for a route that leads nowhere.
	Device string
	Index  int
	// Physical says that the device is hardware, or was never made by a network of pods.
	Physical bool
	// Kind is "blackhole", "unreachable" or "prohibit" for a route that leads nowhere, else empty.
	Kind string
	// Protocol is rtm_protocol: who made it. `ip route` knows the names of some.
	Protocol int
}

// String is the route as `ip route del` takes it.
func (r ForeignRoute) String() string {
	if r.Kind != "" {
		return r.Kind + " " + r.Prefix.String() + " proto " + strconv.Itoa(r.Protocol)
	}
	return r.Prefix.String() + " dev " + r.Device
}

// Foreign gives the routes of table main that are not Beeline's and lead to one of these prefixes or to a part of one, sorted by
// prefix. They go before Beeline's routes to the same prefixes, or take their place.
func (r Routes) Foreign(within []netip.Prefix) (all []ForeignRoute) {
	known := map[int]ForeignRoute{}
	var others []*listedRoute
	for i := range r.all {
		if route := &r.all[i]; !route.ours() && route.Table == 0 {
			others = append(others, route)
		}
	}
	isWithin := coverOf(within, len(others))
	for _, route := range others {
		if !isWithin(route.Prefix) {
			continue
		}
		f := ForeignRoute{Prefix: route.Prefix, Index: route.Device, Protocol: int(route.protocol), Kind: nowhere[int(route.kind)]}
		if f.Kind != "" {
			f.Index = 0 // of IPv6 it is lo's
		} else {
			f.Device, f.Physical = nameOf(f.Index, known)
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b ForeignRoute) int { return a.Prefix.Compare(b.Prefix) })
	return all
}

// nowhere are the types of routes that answer or drop instead of sending anywhere.
var nowhere = map[int]string{unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit"}

func nameOf(index int, known map[int]ForeignRoute) (name string, physical bool) {
	f, ok := known[index]
	if !ok {
		f.Device = "device " + strconv.Itoa(index) // that has just gone
		if link, err := netlink.LinkByIndex(index); err == nil {
			f.Device, f.Physical = link.Attrs().Name, link.Type() == "device"
		}
		known[index] = f
	}
	return f.Device, f.Physical
}

// cover is a set of prefixes that is asked for one that contains another.
type cover struct {
	prefixes map[netip.Prefix]bool
	lengths  []int
}

// fewAsked is how many questions are answered without making a cover of the prefixes, of which there may be thousands.
const fewAsked = 16

// coverOf gives a function that tells whether one of the prefixes contains another, for so many questions.
func coverOf(prefixes []netip.Prefix, asked int) func(netip.Prefix) bool {
	if asked <= fewAsked {
		return func(other netip.Prefix) bool {
			return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() <= other.Bits() && p.Contains(other.Addr()) })
		}
	}
	c := cover{prefixes: make(map[netip.Prefix]bool, len(prefixes))}
	for _, p := range prefixes {
		p = p.Masked()
		c.prefixes[p] = true
		if !slices.Contains(c.lengths, p.Bits()) {
			c.lengths = append(c.lengths, p.Bits())
		}
	}
	return c.has
}

func (c cover) has(prefix netip.Prefix) bool {
	return slices.ContainsFunc(c.lengths, func(bits int) bool {
		if bits > prefix.Bits() {
			return false
		}
		wider, err := prefix.Addr().Prefix(bits)
		return err == nil && c.prefixes[wider]
	})
}

// AddressesOfOthers lists the addresses within these prefixes, of this node's pods, that somebody else on the node has: the node's own
// devices, routes to single addresses that are not Beeline's, and neighbours on devices of others that a part of the prefixes is routed to.
func AddressesOfOthers(within []netip.Prefix, routes Routes) (taken []netip.Addr, err error) {
	local, err := LocalAddresses()
	if err != nil {
		return nil, err
	}
	all := local
	asked := map[int]bool{}
	for _, r := range routes.Foreign(within) {
		if r.Prefix.IsSingleIP() {
			all = append(all, r.Prefix.Addr())
		}
		if r.Index == 0 || asked[r.Index] {
			continue
		}
		asked[r.Index] = true
		neighbours, err := Neighbours(r.Index)
		if err != nil {
			return nil, err
		}
		for addr := range neighbours {
			all = append(all, addr)
		}
	}
	isWithin := coverOf(within, len(all))
	for _, addr := range all {
		if isWithin(netip.PrefixFrom(addr, addr.BitLen())) {
			taken = append(taken, addr)
		}
	}
	slices.SortFunc(taken, netip.Addr.Compare)
	return slices.Compact(taken), nil
}
