package cluster

import (
	"fmt"
	"net/netip"
	"slices"
)

// origin is one source of objects, a file or a single object of an API server: its last valid content and its current
// one.
type origin struct {
	// name is unique among the origins that are resolved together.
	name string
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
func resolve(origins []*origin) (nodes []nodeObject, objects []keyedObject, errs []error) {
	use := make(map[*origin]*manifest, len(origins))
	for _, o := range origins {
		errs = append(errs, o.errs...)
		use[o] = o.good
		if o.read != nil {
			use[o] = o.read
		}
	}
	for {
		nodes, objects = nil, nil
		var nodeOrigins, objectOrigins []*origin // by index of nodes and objects
		for _, o := range origins {
			if m := use[o]; m != nil {
				nodes, objects = append(nodes, m.nodes...), append(objects, m.objects...)
				nodeOrigins = append(nodeOrigins, slices.Repeat([]*origin{o}, len(m.nodes))...)
				objectOrigins = append(objectOrigins, slices.Repeat([]*origin{o}, len(m.objects))...)
			}
		}
		found, of := firstClash(nodes), nodeOrigins
		if found == nil {
			found, of = firstNameTwice(objects), objectOrigins
		}
		if found == nil {
			for _, o := range origins {
				if m := use[o]; m != nil {
					o.good = m
				}
			}
			return nodes, objects, errs
		}
		a, b := of[found.a.index], of[found.b.index]
		loser := giveWay(a, b, use)
		errs = append(errs, found.errorFor(loser == b))
		if use[loser] == loser.good {
			use[loser] = nil
		} else {
			use[loser] = loser.good
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
	index int    // among the objects compared
	name  string // kind and name
	place *position
	field string // what contradicts
}

// errorFor describes the conflict as an error of a or of b.
func (c *clash) errorFor(b bool) error {
	own, other := c.a, c.b
	if b {
		own, other = c.b, c.a
	}
	return fmt.Errorf("%s: %s: %s %s (%s)", own.place.of(own.field), own.name, c.what, other.name, other.place.of(other.field))
}

// firstNameTwice finds two objects of the same kind and name.
func firstNameTwice(objects []keyedObject) *clash {
	type name struct {
		kind Kind
		key  Key
	}
	names := make(map[name]int, len(objects))
	side := func(i int) party {
		return party{i, string(objects[i].kind) + " " + objects[i].key.String(), objects[i].place, "metadata.name"}
	}
	for i, o := range objects {
		at := name{o.kind, o.key}
		if other, taken := names[at]; taken {
			return &clash{a: side(other), b: side(i), what: "has the same name as"}
		}
		names[at] = i
	}
	return nil
}

// firstClash finds a conflict, always the same one for the same nodes.
func firstClash(nodes []nodeObject) *clash {
	side := func(i int, field string) party { return party{i, "Node " + nodes[i].Name, nodes[i].place, field} }
	names := make(map[string]int, len(nodes))
	addresses := make(map[netip.Addr]party, len(nodes))
	type cidr struct {
		netip.Prefix
		party
	}
	cidrs := make([]cidr, 0, len(nodes))
	for i, n := range nodes {
		if other, taken := names[n.Name]; taken {
			return &clash{a: side(other, "metadata.name"), b: side(i, "metadata.name"), what: "has the same name as"}
		}
		names[n.Name] = i
		for j, addr := range n.Addresses {
			if other, taken := addresses[addr]; taken {
				return &clash{a: other, b: side(i, n.addressField[j]), what: fmt.Sprintf("address %s is also that of", addr)}
			}
			addresses[addr] = side(i, n.addressField[j])
		}
		for j, prefix := range n.PodCIDRs {
			cidrs = append(cidrs, cidr{prefix, side(i, n.cidrField[j])})
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
