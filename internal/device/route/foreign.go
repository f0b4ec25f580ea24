package route

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Foreign is a route of table main that Beeline did not make.
type Foreign struct {
	Prefix netip.Prefix
	// Device is the name of the outgoing device and Index its index; empty and 0 for a route that drops or rejects.
	Device string
	Index  int
	// Physical reports that the device is hardware, not a virtual device of another pod network.
	Physical bool
	// Kind is "blackhole", "unreachable" or "prohibit" for a route that drops or rejects, else empty.
	Kind string
	// Protocol is rtm_protocol: the program that made the route. iproute2 has names for some.
	Protocol int
}

// String formats the route as `ip route del` takes it.
func (f Foreign) String() string {
	if f.Kind != "" {
		return f.Kind + " " + f.Prefix.String() + " proto " + strconv.Itoa(f.Protocol)
	}
	return f.Prefix.String() + " dev " + f.Device
}

// Foreign returns the routes of table main that are not Beeline's and lead to one of these prefixes or to a part of one, sorted by
// prefix. The kernel prefers them to Beeline's routes, or they have the prefix and metric of one.
func (t Table) Foreign(within []netip.Prefix) (all []Foreign) {
	devices := map[int]Foreign{}
	var others []*listed
	for i := range t.all {
		if r := &t.all[i]; !r.ours() && r.Table == 0 {
			others = append(others, r)
		}
	}
	isWithin := containsFunc(within, len(others))
	for _, r := range others {
		if !isWithin(r.Prefix) {
			continue
		}
		f := Foreign{Prefix: r.Prefix, Index: r.Device, Protocol: int(r.protocol), Kind: dropKinds[int(r.kind)]}
		if f.Kind != "" {
			f.Index = 0 // IPv6 gives lo's
		} else {
			f.Device, f.Physical = nameOf(f.Index, devices)
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Foreign) int { return a.Prefix.Compare(b.Prefix) })
	return all
}

// dropKinds are the types of routes that drop or reject.
var dropKinds = map[int]string{unix.RTN_BLACKHOLE: "blackhole", unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit"}

func nameOf(index int, devices map[int]Foreign) (name string, physical bool) {
	f, ok := devices[index]
	if !ok {
		f.Device = "device " + strconv.Itoa(index) // gone since the dump
		if link, err := netlink.LinkByIndex(index); err == nil {
			f.Device, f.Physical = link.Attrs().Name, link.Type() == "device"
		}
		devices[index] = f
	}
	return f.Device, f.Physical
}

// fewLookups is the number of lookups up to which a linear search is cheaper than building a prefixSet of thousands of prefixes.
const fewLookups = 16

// containsFunc returns a function that reports whether one of the prefixes contains another; it will be called so many times.
func containsFunc(prefixes []netip.Prefix, lookups int) func(netip.Prefix) bool {
	if lookups <= fewLookups {
		return func(other netip.Prefix) bool {
			return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() <= other.Bits() && p.Contains(other.Addr()) })
		}
	}
	set := prefixSet{prefixes: make(map[netip.Prefix]bool, len(prefixes))}
	for _, p := range prefixes {
		p = p.Masked()
		set.prefixes[p] = true
		if !slices.Contains(set.lengths, p.Bits()) {
			set.lengths = append(set.lengths, p.Bits())
		}
	}
	return set.contains
}

// prefixSet looks up a prefix once for each length of its members.
type prefixSet struct {
	prefixes map[netip.Prefix]bool
	lengths  []int
}

func (s prefixSet) contains(prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.lengths, func(bits int) bool {
		if bits > prefix.Bits() {
			return false
		}
		wider, err := prefix.Addr().Prefix(bits)
		return err == nil && s.prefixes[wider]
	})
}
