package plan

import (
	"net/netip"

	"go4.org/netipx"
)

// Pools of a cluster with Beeline, from which its pods have addresses of the nodes' link.
const (
	// PoolsNone is no pool: pods have addresses of their node's pod range.
	PoolsNone = "none"
	// PoolsMacvlan is a default pool of macvlan devices.
	PoolsMacvlan = "macvlan"
	// PoolsMixed is a pool of macvlan devices and one of the routed underlay, for pods that name them.
	PoolsMixed = "mixed"
)

// Names of the pools, and the kind of device that one of them has.
const (
	MacvlanPool   = "macvlan"
	RoutedPool    = "routed"
	DeviceMacvlan = "macvlan"
)

// Pool is an IPPool of the cluster.
type Pool struct {
	Name string
	// Device is the kind of its pods' devices; empty means the nodes'.
	Device string
	// Default pools have the pods that name none.
	Default bool
	// Subnets are those of the nodes' link, one for each family of the cluster.
	Subnets []netip.Prefix
	// Ranges are the addresses for pods. Machines have none of them.
	Ranges []netipx.IPRange
	// NamespaceMax is the number of addresses of a range: one namespace may have all of them.
	NamespaceMax int
}

// Pools returns the pools of the cluster.
func (c Cluster) Pools() []Pool {
	switch c.Options.Pools {
	case PoolsMacvlan:
		return []Pool{c.pool(Pool{Name: MacvlanPool, Device: DeviceMacvlan, Default: true}, 64, 250)}
	case PoolsMixed:
		return []Pool{c.pool(Pool{Name: MacvlanPool, Device: DeviceMacvlan}, 64, 157), c.pool(Pool{Name: RoutedPool}, 158, 250)}
	}
	return nil
}

// pool sets the addresses of a pool to these hosts of the nodes' link.
func (c Cluster) pool(p Pool, first, last int) Pool {
	p.NamespaceMax = last - first + 1
	firsts, lasts := c.prefixes(0, first), c.prefixes(0, last)
	for i := range firsts {
		p.Subnets = append(p.Subnets, firsts[i].Masked())
		p.Ranges = append(p.Ranges, netipx.IPRangeFrom(firsts[i].Addr(), lasts[i].Addr()))
	}
	return p
}
