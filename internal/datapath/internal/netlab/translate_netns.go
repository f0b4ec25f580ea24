package netlab

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/service"
)

// Serve gives the node a Service at an address, with one echo server behind it.
func (n *Node) Serve(t *testing.T, frontend, backend netip.Addr) {
	t.Helper()
	var ports []service.Port
	for i, protocol := range []cluster.Protocol{cluster.TCP, cluster.UDP} {
		b := service.Backends{Addresses: []netip.AddrPort{netip.AddrPortFrom(backend, EchoPort)}, Maglev: true}
		ports = append(ports, service.Port{
			Name: service.PortName{Service: cluster.Key{Namespace: "default", Name: "late"}, Number: uint16(1 + i), Protocol: protocol},
			Entries: []service.Entry{{
				Frontend: service.Frontend{Address: frontend, Port: fixtures.WorldPort, Protocol: protocol},
				Kind:     service.KindClusterIP, Inside: b, Outside: b,
			}},
		})
	}
	if err := n.D.Services.Apply(ports, nil); err != nil {
		t.Fatal(err)
	}
}

// CarriesService sends through a Service: a stream with all that segmentation offload makes of it, and datagrams, also in pieces.
func CarriesService(t *testing.T, from Netns, frontend netip.Addr) {
	t.Helper()
	to := netip.AddrPortFrom(frontend, fixtures.WorldPort)
	if err := EchoTCP(from.DialPort(t, "tcp", to), 1<<20); err != nil {
		t.Errorf("TCP: %v", err)
	}
	udp := from.DialPort(t, "udp", to)
	for i := range 12 {
		if err := EchoUDP(udp, 1+i*100); err != nil {
			t.Errorf("UDP, datagram %d: %v", i, err)
		}
	}
	if err := EchoUDP(udp, 4000); err != nil {
		t.Errorf("UDP in fragments: %v", err)
	}
}

// backendPlace is where a backend of PodA's Service is.
type backendPlace struct {
	Netns
	address netip.Addr
}

// Places are all where a backend can be.
func (n *Network) Places(family int) map[string]backendPlace {
	return map[string]backendPlace{
		"another node":   {n.B1.Netns, n.B1.Addr(family)},
		"here":           {n.A2.Netns, n.A2.Addr(family)},
		"the pod itself": {n.A1.Netns, n.A1.Addr(family)},
		"its node":       {n.A.Netns, n.A.Addr(family)},
		"the world":      {*n.World, fixtures.External.Addr(family)},
	}
}

// ReachesThroughService has PodA use a ClusterIP whose only backend is there.
func (n *Network) ReachesThroughService(t *testing.T, backend backendPlace, family int) {
	t.Helper()
	backend.ServeTCP(t, backend.address)
	backend.ServeUDP(t, backend.address)
	n.A.Serve(t, fixtures.ClusterIP.Addr(family), backend.address)
	CarriesService(t, n.A1.Netns, fixtures.ClusterIP.Addr(family))
}
