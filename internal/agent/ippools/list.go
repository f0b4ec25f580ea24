package ippools

import (
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// List gives all pools, sorted by name, with their use.
func (p *Pools) List() []agentapi.IPPool {
	s, set := p.current()
	if s == nil {
		return nil
	}
	all := make([]agentapi.IPPool, 0, len(s.IPPools))
	for _, of := range s.IPPools {
		pool := set.Pool(of.Name)
		entry := agentapi.IPPool{
			Name: of.Name, Subnets: of.Subnets, Device: of.Device, Uplink: of.Uplink, VLAN: int(of.VLAN),
			Default: of.Default, Disabled: of.Disabled, Invalid: of.Invalid, Overlaps: pool.Overlaps,
		}
		for _, f := range pool.Families() {
			c := p.counts(pool, f)
			entry.Families = append(entry.Families, agentapi.IPPoolUse{
				Family: f.String(), Total: c.Total, Allocated: c.Allocated, Free: c.Free, Conflicts: c.Conflicts,
			})
		}
		all = append(all, entry)
	}
	return all
}

// counts counts the addresses of a family of a pool.
func (p *Pools) counts(pool *ippool.Pool, f ippool.Family) cluster.IPPoolCounts {
	use, total := p.allocator.Use(pool, f), pool.Spaces[f].Size()
	return cluster.IPPoolCounts{Total: total, Allocated: use.Allocated, Free: total - use.Taken, Conflicts: use.Conflicts}
}
