package ippools

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
)

// No pod gets the cluster IP or the load balancer's address of a Service. An externalIP, which a tenant chooses, takes nothing from
// a pool.
func TestAddressesOfServices(t *testing.T) {
	p, _ := withServer(t)
	service := &cluster.Service{Namespace: "shop", Name: "web", ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.11")}}
	s := cluster.Snapshot{IPPools: []*cluster.IPPool{pool("office", "192.0.2.10", nil)}, Services: []*cluster.Service{service}}
	free := func() int64 { return p.List()[0].Families[0].Free }
	update := func(change func(*cluster.Service)) {
		next, last := *service, s
		change(&next)
		service = &next
		last.Services = []*cluster.Service{service}
		s = last
		p.Update(&last)
	}
	update(func(*cluster.Service) {})
	if free() != 2 {
		t.Errorf("with an externalIP %d addresses are free, want 2", free())
	}
	update(func(of *cluster.Service) {
		of.ClusterIPs = []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("198.51.100.1")}
	})
	if free() != 1 {
		t.Errorf("with a cluster IP %d addresses are free, want 1", free())
	}
	update(func(of *cluster.Service) { of.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("192.0.2.11")} })
	if free() != 0 {
		t.Errorf("with a load balancer's address, too, %d addresses are free, want 0", free())
	}
	update(func(of *cluster.Service) { of.ClusterIPs, of.LoadBalancerIPs = nil, nil })
	if free() != 2 {
		t.Errorf("without the Service's addresses %d addresses are free, want 2", free())
	}
}
