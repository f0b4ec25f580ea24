package ippools

import (
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// serviceAddresses gives the addresses in the subnets of pools that the cluster has given to Services, sorted: no pod may have
// them. externalIPs are not among them. Tenants choose those, and a pool comes first.
func serviceAddresses(s *cluster.Snapshot) (all []netip.Addr) {
	if len(s.IPPools) == 0 {
		return nil
	}
	inPool := func(a netip.Addr) bool {
		return slices.ContainsFunc(s.IPPools, func(p *cluster.IPPool) bool {
			return slices.ContainsFunc(p.Subnets, func(subnet netip.Prefix) bool { return subnet.Contains(a) })
		})
	}
	for _, of := range s.Services {
		for _, addresses := range [][]netip.Addr{of.ClusterIPs, of.LoadBalancerIPs} {
			for _, a := range addresses {
				if inPool(a) {
					all = append(all, a)
				}
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}
