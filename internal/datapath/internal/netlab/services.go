package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
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
				Frontend: service.Frontend{Address: frontend, Port: fixtures.ServicePort, Protocol: protocol},
				Kind:     service.KindClusterIP, Internal: b, External: b,
			}},
		})
	}
	if err := n.D.Services.Apply(ports, nil); err != nil {
		t.Fatal(err)
	}
}

// Rejects checks that connections and datagrams to a Service without backends are refused.
func Rejects(t *testing.T, name string, from Netns, frontend netip.AddrPort) {
	t.Helper()
	from.Do(t, func() error {
		c, err := net.DialTimeout("tcp", frontend.String(), Patience)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: TCP from %s: %v", frontend, name, err)
		}
		return nil
	})
	c := from.DialPort(t, "udp", frontend)
	if _, err := c.Write([]byte("anybody?")); err != nil {
		t.Fatal(err)
	}
	if err := Expect(c, nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%s: UDP from %s: %v", frontend, name, err)
	}
}

// CarriesService sends through a Service: a stream with all that segmentation offload makes of it, and datagrams, also in pieces.
func CarriesService(t *testing.T, from Netns, frontend netip.Addr) {
	t.Helper()
	to := netip.AddrPortFrom(frontend, fixtures.ServicePort)
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
		"another node":     {n.B1.Netns, n.B1.Addr(family)},
		"here":             {n.A2.Netns, n.A2.Addr(family)},
		"the pod itself":   {n.A1.Netns, n.A1.Addr(family)},
		"its node":         {n.A.Netns, n.A.Addr(family)},
		"an external host": {*n.External, fixtures.External.Addr(family)},
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

// ServeNodePort gives the node a NodePort of both families and protocols, whose backends are the echo servers of a pod.
func (n *Node) ServeNodePort(tb testing.TB, dsr bool, backends ...*Pod) {
	tb.Helper()
	var ports []service.Port
	for i, protocol := range []cluster.Protocol{cluster.TCP, cluster.UDP} {
		p := service.Port{Name: service.PortName{Service: cluster.Key{Namespace: "default", Name: "echo"}, Number: uint16(1 + i), Protocol: protocol}}
		for _, family := range fixtures.Families {
			b := service.Backends{Maglev: len(backends) > 0}
			for _, pod := range backends {
				b.Addresses = append(b.Addresses, netip.AddrPortFrom(pod.Addr(family), EchoPort))
			}
			p.Entries = append(p.Entries, service.Entry{
				Frontend: service.Frontend{Address: n.Addr(family), Port: fixtures.ServicePort, Protocol: protocol},
				Kind:     service.KindNodePort, Internal: b, External: b, DSR: dsr,
			})
		}
		ports = append(ports, p)
	}
	if err := n.D.Services.Apply(ports, nil); err != nil {
		tb.Fatal(err)
	}
	uplink := fwd.Uplink{IPv4: n.V4, IPv6: n.V6, MAC: n.Mac, MTU: 1500}
	if _, err := n.D.Uplinks.Sync(map[int]fwd.Uplink{n.Uplink.Index: uplink}); err != nil {
		tb.Fatal(err)
	}
}

// Accelerate puts wire_xdp on the node's uplink. The switch's end gets what XDP on veth needs of it: a program, so that
// frames can be sent to it past any skb, and finished checksums, since XDP sees no promise to finish them.
func (n *Network) Accelerate(tb testing.TB, node *Node) {
	tb.Helper()
	n.sw.Do(tb, func() error {
		port, err := netlink.LinkByName(fmt.Sprintf("port%x", node.Mac[4]))
		if err != nil {
			return err
		}
		pass, err := harness.PassXDP()
		if err != nil {
			return err
		}
		tb.Cleanup(func() { pass.Close() })
		l, err := link.AttachXDP(link.XDPOptions{Program: pass, Interface: port.Attrs().Index, Flags: link.XDPDriverMode})
		if err != nil {
			return err
		}
		tb.Cleanup(func() { l.Close() })
		return testenv.FinishChecksums(port.Attrs().Name)
	})
	node.Do(tb, func() error {
		got, err := node.D.Accelerate("eth0", node.Uplink.Index)
		if err == nil && got.Hook != config.AccelerationXDP {
			err = fmt.Errorf("the uplink is accelerated by %s, since %s", got.Hook, got.Reason)
		}
		return err
	})
}

// UplinkPackets counts what eth0 of a place has sent and received.
func (p Netns) UplinkPackets(tb testing.TB) (sent, received uint64) {
	tb.Helper()
	p.Do(tb, func() error {
		dev, err := netlink.LinkByName("eth0")
		if err == nil {
			sent, received = dev.Attrs().Statistics.TxPackets, dev.Attrs().Statistics.RxPackets
		}
		return err
	})
	return sent, received
}
