package macvlan_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// A macvlan pod reaches backends of every kind through a Service's address in its packets, and is a backend itself: of a ClusterIP, and
// of NodePorts of its node and of another node, with SNAT and DSR.
func TestMacvlanServices(t *testing.T) {
	for _, dsr := range []bool{false, true} {
		t.Run(fmt.Sprintf("dsr=%v", dsr), func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true, Masquerade: true, Services: true, DSR: dsr}})
			m1, m2 := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
			for _, family := range fixtures.Families {
				frontend := fixtures.ClusterIP.Addr(family)
				for _, backend := range []struct {
					name string
					netlab.Netns
					a netip.Addr
				}{
					{"macvlan pod", m2.Netns, m2.Addr(family)}, {"veth pod", n.A1.Netns, n.A1.Addr(family)},
					{"pod of another node", n.B1.Netns, n.B1.Addr(family)}, {"external host", *n.External, n.ExternalOnSwitch(family)},
					{"itself", m1.Netns, m1.Addr(family)},
				} {
					t.Run(fmt.Sprintf("IPv%d to %s", family, backend.name), func(t *testing.T) {
						backend.ServeTCP(t, backend.a)
						backend.ServeUDP(t, backend.a)
						n.A.Serve(t, frontend, backend.a)
						netlab.CarriesService(t, m1.Netns, frontend)
					})
				}
				m1.ServeTCP(t, m1.Addr(family))
				m1.ServeUDP(t, m1.Addr(family))
				t.Run(fmt.Sprintf("IPv%d from a veth pod", family), func(t *testing.T) {
					n.A.Serve(t, frontend, m1.Addr(family))
					netlab.CarriesService(t, n.A1.Netns, frontend)
				})
				n.A.ServeNodePort(t, dsr, m1)
				n.B.ServeNodePort(t, dsr, m1)
				for _, node := range []*netlab.Node{n.A, n.B} {
					t.Run(fmt.Sprintf("IPv%d from an external host by %s", family, node.V4), func(t *testing.T) {
						netlab.CarriesService(t, *n.External, node.Addr(family))
					})
					t.Run(fmt.Sprintf("IPv%d from a macvlan pod by %s", family, node.V4), func(t *testing.T) {
						netlab.CarriesService(t, m2.Netns, node.Addr(family))
					})
				}
			}
			n.DropsNothing(t)
		})
	}
}

// A node with macvlan pods rejects packets to a Service without backends: its replies go to the MAC that the packets came from.
func TestMacvlanServiceRejected(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true, Masquerade: true, Services: true}})
	m := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0])
	n.A.ServeNodePort(t, false)
	for _, family := range fixtures.Families {
		frontend := netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort)
		for name, from := range map[string]netlab.Netns{
			"an external host": *n.External, "another node": n.B.Netns, "a pod of another node": n.B1.Netns, "a veth pod": n.A1.Netns, "a macvlan pod": m.Netns,
		} {
			netlab.Rejects(t, name, from, frontend)
		}
	}
}
