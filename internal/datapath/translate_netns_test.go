package datapath

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
)

// The ClusterIPs of the tests. No socket hook is attached: packets reach tc with them.
var clusterIP = member{v4: addr("10.96.0.10"), v6: addr("fd00:96::10")}

// serve gives the node a Service at an address, with one echo server behind it.
func (n *node) serve(t *testing.T, frontend, backend netip.Addr) {
	t.Helper()
	var ports []service.Port
	for i, protocol := range []cluster.Protocol{cluster.TCP, cluster.UDP} {
		b := service.Backends{Addresses: []netip.AddrPort{netip.AddrPortFrom(backend, echoPort)}, Maglev: true}
		ports = append(ports, service.Port{
			Name: service.PortName{Service: cluster.Key{Namespace: "default", Name: "late"}, Number: uint16(1 + i), Protocol: protocol},
			Entries: []service.Entry{{
				Frontend: service.Frontend{Address: frontend, Port: worldPort, Protocol: protocol},
				Kind:     service.KindClusterIP, Inside: b, Outside: b,
			}},
		})
	}
	if err := n.d.Services.Apply(ports, nil); err != nil {
		t.Fatal(err)
	}
}

// carriesService sends through a Service: a stream with all that segmentation offload makes of it, and datagrams, also in pieces.
func carriesService(t *testing.T, from place, frontend netip.Addr) {
	t.Helper()
	to := netip.AddrPortFrom(frontend, worldPort)
	if err := echoTCP(from.dialPort(t, "tcp", to), 1<<20); err != nil {
		t.Errorf("TCP: %v", err)
	}
	udp := from.dialPort(t, "udp", to)
	for i := range 12 {
		if err := echoUDP(udp, 1+i*100); err != nil {
			t.Errorf("UDP, datagram %d: %v", i, err)
		}
	}
	if err := echoUDP(udp, 4000); err != nil {
		t.Errorf("UDP in fragments: %v", err)
	}
}

// backendPlace is where a backend of podA's Service is.
type backendPlace struct {
	place
	address netip.Addr
}

// places are all where a backend can be.
func (n *network) places(family int) map[string]backendPlace {
	return map[string]backendPlace{
		"another node":   {n.b1.place, n.b1.addr(family)},
		"here":           {n.a2.place, n.a2.addr(family)},
		"the pod itself": {n.a1.place, n.a1.addr(family)},
		"its node":       {n.a.place, n.a.addr(family)},
		"the world":      {*n.world, world.addr(family)},
	}
}

// reachesThroughService has podA use a ClusterIP whose only backend is there.
func (n *network) reachesThroughService(t *testing.T, backend backendPlace, family int) {
	t.Helper()
	backend.serveTCP(t, backend.address)
	backend.serveUDP(t, backend.address)
	n.a.serve(t, clusterIP.addr(family), backend.address)
	carriesService(t, n.a1.place, clusterIP.addr(family))
}

// A pod reaches a ClusterIP that its socket did not find, wherever the backend is: on another node, here, in the pod itself,
// on the node, in the world.
func TestLateServices(t *testing.T) {
	for _, routing := range []bool{true, false} {
		t.Run(fmt.Sprintf("ebpf=%t", routing), func(t *testing.T) {
			n := newNetwork(t, options{cfg: Config{EBPFRouting: routing, Masquerade: true, Services: true}})
			for _, family := range families {
				for name, backend := range n.places(family) {
					t.Run(fmt.Sprintf("IPv%d/%s", family, name), func(t *testing.T) {
						n.reachesThroughService(t, backend, family)
					})
				}
			}
			n.dropsNothing(t)
		})
	}
}

// A client of the world keeps its address towards a backend on the node that it has reached.
func TestNodePortLocalBackend(t *testing.T) {
	for _, routing := range []bool{true, false} {
		t.Run(fmt.Sprintf("ebpf=%t", routing), func(t *testing.T) {
			n := newNetwork(t, options{cfg: Config{EBPFRouting: routing, Masquerade: true, Services: true}})
			for _, family := range families {
				n.a.serve(t, n.a.addr(family), n.a1.addr(family))
				seen := n.a1.listenUDP(t, n.a1.addr(family))
				client := n.world.dialPort(t, "udp", netip.AddrPortFrom(n.a.addr(family), worldPort))
				write(t, client, "who am I")
				_, from, err := seen.ReadFromUDPAddrPort(make([]byte, 100))
				if err != nil {
					t.Fatal(err)
				}
				if from.Addr().Unmap() != n.worldOnSwitch(family) {
					t.Errorf("IPv%d: the backend sees %s, not the client", family, from)
				}
				seen.Close()
				n.a1.serveTCP(t, n.a1.addr(family))
				n.a1.serveUDP(t, n.a1.addr(family))
				carriesService(t, *n.world, n.a.addr(family))
				// So does a pod of another node, whose packets and answers go straight otherwise.
				carriesService(t, n.b1.place, n.a.addr(family))
			}
			n.dropsNothing(t)
		})
	}
}
