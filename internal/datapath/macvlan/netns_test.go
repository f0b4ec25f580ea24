package macvlan_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// Pods with macvlan devices reach pods of every kind, their own node, other nodes and external hosts, and are reached.
func TestMacvlan(t *testing.T) {
	plain := config.Datapath{EBPFRouting: true, Macvlan: true}
	masquerading := config.Datapath{EBPFRouting: true, Macvlan: true, Masquerade: true}
	for name, o := range map[string]netlab.Options{
		"plain": {Cfg: plain}, "masquerading": {Cfg: masquerading}, "clsact filters": {Cfg: masquerading, Legacy: true},
		"Services":           {Cfg: config.Datapath{EBPFRouting: true, Macvlan: true, Masquerade: true, Services: true}},
		"policies and flows": {Cfg: config.Datapath{EBPFRouting: true, Macvlan: true, Masquerade: true, Services: true, Policy: true, Flows: config.FlowsAll}},
	} {
		t.Run(name, func(t *testing.T) {
			n := netlab.NewNetwork(t, o)
			m1 := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0])
			m2 := n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
			for _, family := range fixtures.Families {
				m := m1.Addr(family)
				for _, peer := range []struct {
					name string
					netlab.Netns
					a netip.Addr
				}{
					{"macvlan pod", m2.Netns, m2.Addr(family)},
					{"veth pod", n.A1.Netns, n.A1.Addr(family)},
					{"its node", n.A.Netns, n.A.Addr(family)},
					{"another node", n.B.Netns, n.B.Addr(family)},
					{"pod of another node", n.B1.Netns, n.B1.Addr(family)},
					{"external host", *n.External, n.ExternalOnSwitch(family)},
				} {
					t.Run(fmt.Sprintf("IPv%d to %s", family, peer.name), func(t *testing.T) {
						netlab.Carries(t, m1.Netns, peer.Netns, m, peer.a)
					})
					t.Run(fmt.Sprintf("IPv%d from %s", family, peer.name), func(t *testing.T) {
						netlab.Carries(t, peer.Netns, m1.Netns, peer.a, m)
					})
				}
			}
			n.DropsNothing(t)
		})
	}
}
