package cluster

import (
	"fmt"
	"net/netip"
	"slices"
)

// origin is a file with its last valid content and its current one.
type origin struct {
	name string // the path
	// good is active until a newer valid state replaces it; nil if none was ever valid.
	good *manifest
	// read is the current content; nil while it is unreadable or invalid, for the reasons in errs.
	read *manifest
	errs []error
	// mentions are the kinds of which an invalid file may have objects.
	mentions Kinds
	// early says that it existed when everything was first read: an earlier agent may have applied it.
	early bool
}

// resolve decides what is active: for each origin its current content, or its last valid one. Objects of different
// origins may conflict (same name; Nodes with the same address or overlapping ranges). Then the origin that changed
// loses, the later in alphabetical order if both changed. Origins are sorted by name.
func resolve(origins []*origin) (objects []keyedObject, errs []error) {
	use := make(map[*origin]*manifest, len(origins))
	for _, o := range origins {
		errs = append(errs, o.errs...)
		use[o] = o.good
		if o.read != nil {
			use[o] = o.read
		}
	}
	for {
		objects = nil
		var of []*origin // by index of objects
		for _, o := range origins {
			if m := use[o]; m != nil {
				objects = append(objects, m.objects...)
				of = append(of, slices.Repeat([]*origin{o}, len(m.objects))...)
			}
		}
		found := firstClash(objects)
		if found == nil {
			for o, m := range use {
				if m != nil {
					o.good = m
				}
			}
			return objects, errs
		}
		winner, loser := found.a, found.b
		gone := giveWay(of[winner.index], of[loser.index], use)
		if gone != of[loser.index] {
			winner, loser = loser, winner
		}
		errs = append(errs, fmt.Errorf("%s: %s: %s %s (%s)", loser.line(), loser, found.what, winner, winner.line()))
		if use[gone] == gone.good {
			use[gone] = nil
		} else {
			use[gone] = gone.good
		}
	}
}

// giveWay picks the origin that loses a conflict; both may be the same.
func giveWay(a, b *origin, use map[*origin]*manifest) *origin {
	if a.name > b.name {
		a, b = b, a
	}
	if changed := func(o *origin) bool { return use[o] != o.good }; changed(a) && !changed(b) {
		return a
	}
	return b
}

// clash is a conflict between two objects.
type clash struct {
	a, b party
	what string // such as "has the same name as"; the other object follows
}

// party is one side of a clash.
type party struct {
	keyedObject
	index int    // among all objects
	field string // what contradicts
}

// String gives kind and name.
func (p party) String() string { return fmt.Sprintf("%s %s", p.kind, p.object.Key()) }

func (p party) line() string { return p.place.of(p.field) }

// firstClash finds a conflict, always the same one for the same objects.
func firstClash(objects []keyedObject) *clash {
	type name struct {
		kind Kind
		key  Key
	}
	type cidr struct {
		netip.Prefix
		party
	}
	names := make(map[name]party, len(objects))
	addresses := map[netip.Addr]party{}
	var cidrs []cidr
	for i, o := range objects {
		named := party{o, i, "metadata.name"}
		at := name{o.kind, o.object.Key()}
		if other, taken := names[at]; taken {
			return &clash{a: other, b: named, what: "has the same name as"}
		}
		names[at] = named
		n, ok := o.object.(*NodeObject)
		if !ok {
			continue
		}
		for j, addr := range n.Addresses {
			own := party{o, i, n.addressField[j]}
			if other, taken := addresses[addr]; taken {
				return &clash{a: other, b: own, what: fmt.Sprintf("address %s is also that of", addr)}
			}
			addresses[addr] = own
		}
		for j, prefix := range n.PodCIDRs {
			cidrs = append(cidrs, cidr{prefix, party{o, i, n.cidrField[j]}})
		}
	}
	// Sorted by address, wider first, any overlap shows between two neighbours.
	slices.SortStableFunc(cidrs, func(a, b cidr) int { return a.Compare(b.Prefix) })
	for i := 1; i < len(cidrs); i++ {
		a, b := cidrs[i-1], cidrs[i]
		if a.Overlaps(b.Prefix) {
			return &clash{a: a.party, b: b.party, what: fmt.Sprintf("pod range overlaps (%s and %s) with that of", a.Prefix, b.Prefix)}
		}
	}
	return nil
}
