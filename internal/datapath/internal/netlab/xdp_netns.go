package netlab

import (
	"fmt"
	"net/netip"
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
				Frontend: service.Frontend{Address: n.Addr(family), Port: fixtures.WorldPort, Protocol: protocol},
				Kind:     service.KindNodePort, Inside: b, Outside: b, DSR: dsr,
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
		if err == nil && got.Place != config.AccelerationXDP {
			err = fmt.Errorf("the uplink is accelerated by %s, since %s", got.Place, got.Reason)
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
