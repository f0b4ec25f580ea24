// Package fwd keeps the tables by which packets are forwarded: endpoints, routes, uplinks, tunnel sources, and the lease of neighbours.
package fwd

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// RouteKind is the kind of a cluster prefix. Addresses outside every route are external.
type RouteKind uint8

const (
	// RouteLocal is a pod range of this node.
	RouteLocal = RouteKind(bpf.RouteKindROUTE_LOCAL)
	// RouteRemote is a pod range or an address of another node on the uplink's link.
	RouteRemote = RouteKind(bpf.RouteKindROUTE_REMOTE)
	// RouteCluster is in the cluster, reached by the host's kernel stack.
	RouteCluster = RouteKind(bpf.RouteKindROUTE_CLUSTER)
	// RouteTunnel is a pod range or an address of another node at the other end of a VXLAN tunnel.
	RouteTunnel = RouteKind(bpf.RouteKindROUTE_TUNNEL)
	// RouteEncrypted is a pod range or an address of another node that only encrypted packets may go to.
	RouteEncrypted = RouteKind(bpf.RouteKindROUTE_ENCRYPTED)
)

// Route is the path to a prefix. Fields other than Kind apply to routes to other nodes only.
type Route struct {
	Kind RouteKind
	// Interface is the index of the uplink, of the VXLAN device, or of the one that encrypts. With RouteEncrypted it may be 0: then
	// packets are dropped.
	Interface int
	// MTU in bytes, without the link-layer header; in tunnels of the packet inside.
	MTU int
	// NextHop is the address of the node that the packets go to.
	NextHop netip.Addr
	// NextHopMAC is zero while the neighbour is unresolved; the kernel then resolves each packet. For
	// RouteTunnel it and UplinkMAC are those of the frame inside.
	NextHopMAC MAC
	UplinkMAC  MAC
}

// Routes is the table of the cluster's prefixes. The agent is its only writer.
type Routes struct {
	m, lengths *ebpf.Map
	generation *table.Generation
	// listed: the lengths match the entries, as no Sync has failed or is pending.
	listed *bool
}

// NewRoutes returns the table on its maps.
func NewRoutes(m *bpf.Maps, g *table.Generation) Routes {
	return Routes{m.Routes, m.RouteLengths, g, new(bool)}
}

// All returns the table.
func (t Routes) All() (map[netip.Prefix]Route, error) {
	all := map[netip.Prefix]Route{}
	if err := table.Read(t.m, func(k *bpf.RouteKey, v *bpf.Route) { all[k.Prefix()] = routeOf(*v) }); err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	return all, nil
}

// differ returns the entries to write and the prefixes to delete. Usually the table is unchanged: then no list is
// allocated.
func (t Routes) differ(want map[netip.Prefix]Route) (set, del []netip.Prefix, err error) {
	right := 0
	err = table.Read(t.m, func(k *bpf.RouteKey, v *bpf.Route) {
		p := k.Prefix()
		switch now, wanted := want[p]; {
		case !wanted:
			del = append(del, p)
		case now == routeOf(*v):
			right++
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read routes: %w", err)
	}
	if right == len(want) {
		return nil, del, nil
	}
	have, err := t.All()
	if err != nil {
		return nil, nil, err
	}
	for p, r := range want {
		if old, there := have[p]; !there || old != r {
			set = append(set, p)
		}
	}
	return set, del, nil
}

// Sync makes the table equal to want, writing only differences, and returns how many entries it changed. The datapath
// finds a prefix once its length is listed: lengths are updated after new entries are written and before old ones are
// deleted.
func (t Routes) Sync(want map[netip.Prefix]Route) (int, error) {
	set, del, err := t.differ(want)
	if err != nil {
		return 0, err
	}
	if len(set)+len(del) == 0 && *t.listed {
		return 0, nil
	}
	lengths, err := lengthsOf(slices.Collect(maps.Keys(want)))
	if err != nil {
		return 0, err
	}
	var full error
	var missing []netip.Prefix
	for _, p := range set {
		if e := t.m.Put(bpf.RouteKeyOf(p), want[p].value()); e != nil {
			full, missing = table.FullOr(bpf.MapRoutes, t.m, e, nil), append(missing, p)
		}
	}
	if full != nil {
		slices.SortFunc(missing, netip.Prefix.Compare)
		err = fmt.Errorf("set route %s and %d more: %w", missing[0], len(missing)-1, full)
	}
	for family, l := range lengths {
		if e := t.lengths.Put(uint32(family), l); e != nil {
			err = errors.Join(err, fmt.Errorf("set prefix lengths: %w", e))
		}
	}
	for _, p := range del {
		if e := t.m.Delete(bpf.RouteKeyOf(p)); e != nil && !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, fmt.Errorf("delete route %s: %w", p, e))
		}
	}
	if len(set)+len(del) > 0 {
		err = errors.Join(err, t.generation.Advance())
	}
	*t.listed = err == nil
	return len(set) + len(del), err
}

// ErrLengths: the datapath does not look for some prefix length, or not in the right order.
// ErrLengths means that Change cannot add a prefix: a Sync of all routes can.
var ErrLengths = errors.New("the lengths that the datapath looks for do not fit")

// Change writes and deletes entries without reading others, after a Sync. nested: one may contain another. If it
// fails, a Sync is needed.
func (t Routes) Change(set map[netip.Prefix]Route, del []netip.Prefix, nested bool) error {
	if len(set) > 0 {
		if err := t.findsBy(maps.Keys(set), nested); err != nil {
			return err
		}
	}
	var errs []error
	for p, r := range set {
		if err := t.m.Put(bpf.RouteKeyOf(p), r.value()); err != nil {
			errs = append(errs, fmt.Errorf("set route %s: %w", p, err))
		}
	}
	for _, p := range del {
		if err := t.m.Delete(bpf.RouteKeyOf(p)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			errs = append(errs, fmt.Errorf("delete route %s: %w", p, err))
		}
	}
	if len(set)+len(del) > 0 {
		errs = append(errs, t.generation.Advance())
	}
	return errors.Join(errs...)
}

// findsBy returns an error unless the datapath finds all these prefixes by its list of lengths: see lengthsOf.
func (t Routes) findsBy(prefixes iter.Seq[netip.Prefix], nested bool) error {
	if !*t.listed {
		return ErrLengths
	}
	var known [2]bpf.PrefixLengths // by family
	for family := range known {
		if err := t.lengths.Lookup(uint32(family), &known[family]); err != nil {
			return fmt.Errorf("read prefix lengths: %w", err)
		}
	}
	for p := range prefixes {
		of := &known[1]
		if p.Addr().Is4() {
			of = &known[0]
		}
		lengths := of.PrefixLen[:of.Count]
		longestFirst := slices.IsSortedFunc(lengths, func(a, b uint32) int { return cmp.Compare(b, a) })
		if !slices.Contains(lengths, bpf.PrefixLen(p)) || nested && !longestFirst {
			return fmt.Errorf("route %s: %w", p, ErrLengths)
		}
	}
	return nil
}

// Nested reports whether another route contains the prefix.
func (t Routes) Nested(p netip.Prefix) (bool, error) {
	var lengths bpf.PrefixLengths
	family := uint32(1)
	if p.Addr().Is4() {
		family = 0
	}
	if err := t.lengths.Lookup(family, &lengths); err != nil {
		return false, fmt.Errorf("read prefix lengths: %w", err)
	}
	for _, length := range lengths.PrefixLen[:lengths.Count] {
		bits := int(length)
		if p.Addr().Is4() {
			bits -= 96
		}
		if bits >= p.Bits() {
			continue
		}
		var r bpf.Route
		err := t.m.Lookup(bpf.RouteKeyOf(netip.PrefixFrom(p.Addr(), bits).Masked()), &r)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, ebpf.ErrKeyNotExist) {
			return false, fmt.Errorf("read routes that contain %s: %w", p, err)
		}
	}
	return false, nil
}

func (r Route) value() bpf.Route {
	v := bpf.Route{
		Kind:       uint8(r.Kind),
		Ifindex:    uint32(r.Interface),
		Mtu:        uint16(min(r.MTU, 1<<16-1)),
		NextHopMac: r.NextHopMAC,
		UplinkMac:  r.UplinkMAC,
	}
	if r.NextHopMAC != (MAC{}) {
		v.Resolved = 1
	}
	if r.NextHop.IsValid() {
		v.NextHop = bpf.AddressOf(r.NextHop)
	}
	return v
}

func routeOf(v bpf.Route) Route {
	return Route{
		Kind:       RouteKind(v.Kind),
		Interface:  int(v.Ifindex),
		MTU:        int(v.Mtu),
		NextHop:    v.NextHop.Addr(),
		NextHopMAC: v.NextHopMac,
		UplinkMAC:  v.UplinkMac,
	}
}
