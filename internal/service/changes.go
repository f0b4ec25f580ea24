package service

import (
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// add records the change of an owner's ports.
func (c *Changes) add(before, after []Port) {
	for i := range after {
		if was := find(before, after[i].Name, i); was == nil || !was.equal(&after[i]) {
			c.Set = append(c.Set, after[i])
		}
	}
	for i := range before {
		if find(after, before[i].Name, i) == nil {
			c.Removed = append(c.Removed, before[i].Name)
		}
	}
}

// find returns the port of that name, which is probably at index at.
func find(ports []Port, name PortName, at int) *Port {
	if at < len(ports) && ports[at].Name == name {
		return &ports[at]
	}
	if at = slices.IndexFunc(ports, func(p Port) bool { return p.Name == name }); at >= 0 {
		return &ports[at]
	}
	return nil
}

// keep replaces ports that did not change by the previous ones, so that only one of both stays in memory.
func keep(before, after []Port) {
	for i := range after {
		if was := find(before, after[i].Name, i); was != nil && was.equal(&after[i]) {
			after[i] = *was
		}
	}
}

// equal compares ports of one name.
func (p *Port) equal(other *Port) bool {
	return cluster.Same(p.Entries, other.Entries) || slices.EqualFunc(p.Entries, other.Entries, func(a, b Entry) bool { return a.equal(&b) })
}

func (e *Entry) equal(other *Entry) bool {
	return e.Frontend == other.Frontend && e.Kind == other.Kind && e.Affinity == other.Affinity && e.DSR == other.DSR &&
		e.Internal.equal(&other.Internal) && e.External.equal(&other.External) && slices.Equal(e.Sources, other.Sources)
}

func (b *Backends) equal(other *Backends) bool {
	return b.Without == other.Without && b.Maglev == other.Maglev &&
		(cluster.Same(b.Addresses, other.Addresses) || slices.Equal(b.Addresses, other.Addresses))
}

// sameFrontends reports whether ports have the same frontends of the same kinds, in the same order.
func sameFrontends(a, b []Port) bool {
	return slices.EqualFunc(a, b, func(a, b Port) bool {
		return slices.EqualFunc(a.Entries, b.Entries, func(a, b Entry) bool { return a.Frontend == b.Frontend && a.Kind == b.Kind })
	})
}
