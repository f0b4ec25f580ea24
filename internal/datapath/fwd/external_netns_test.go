package fwd_test

import (
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// Without masquerading external hosts see the pods and reach them directly.
func TestExternalWithoutMasquerading(t *testing.T) {
	for _, family := range fixtures.Families {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true}})
			netlab.Carries(t, n.A1.Netns, *n.External, n.A1.Addr(family), fixtures.External.Addr(family))
			server := n.A1.ListenUDP(t, n.A1.Addr(family))
			before := n.Forwarded(t)
			fixtures.Write(t, n.External.Dial(t, "udp", n.A1.Addr(family)), "from an external host")
			if err := netlab.Expect(server, []byte("from an external host")); err != nil {
				t.Error(err)
			}
			if by := n.Forwarded(t) - before; by != 0 {
				t.Errorf("the stack has forwarded %d packets", by)
			}
			n.DropsNothing(t)
		})
	}
}

// With masquerading external hosts see the node, and connections that they open reach the pod. With eBPF routing the
// kernel stack forwards neither.
func TestExternalMasqueraded(t *testing.T) {
	for _, routing := range []bool{true, false} {
		for _, family := range fixtures.Families {
			cfg := config.Datapath{EBPFRouting: routing, Masquerade: true}
			t.Run(fmt.Sprintf("%s/IPv%d", fixtures.CfgName(cfg), family), func(t *testing.T) {
				n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
				before := n.Forwarded(t)
				netlab.Carries(t, n.A1.Netns, *n.External, n.A1.Addr(family), fixtures.External.Addr(family))

				server := n.External.ListenUDP(t, n.ExternalOnSwitch(family))
				fixtures.Write(t, n.A1.Dial(t, "udp", n.ExternalOnSwitch(family)), "who am I")
				b := make([]byte, 100)
				_, from, err := server.ReadFromUDPAddrPort(b)
				if err != nil {
					t.Fatal(err)
				}
				if from.Addr().Unmap() != n.A.Addr(family) {
					t.Errorf("the external host sees %s, not the node", from)
				}
				server.Close()

				// The other direction: the reply must come from the pod's own address.
				netlab.Carries(t, *n.External, n.A1.Netns, n.ExternalOnSwitch(family), n.A1.Addr(family))
				n.DropsNothing(t)
				if by := n.Forwarded(t) - before; routing && by != 0 {
					t.Errorf("the stack has forwarded %d packets", by)
				}
			})
		}
	}
}

// If an uplink has no address, pod addresses do not leak to external hosts.
func TestUnmasqueradedNeverArrives(t *testing.T) {
	for routing, program := range map[bool]string{true: bpf.ProgFromPod, false: bpf.ProgToWire} {
		cfg := config.Datapath{EBPFRouting: routing, Masquerade: true}
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
			if _, err := n.A.D.Uplinks.Sync(map[int]fwd.Uplink{n.A.Uplink.Index: {MAC: n.A.Mac, MTU: 1500}}); err != nil {
				t.Fatal(err)
			}
			for _, family := range fixtures.Families {
				server := n.External.ListenUDP(t, fixtures.External.Addr(family))
				fixtures.Write(t, n.A1.Dial(t, "udp", fixtures.External.Addr(family)), "masqueraded?")
				netlab.ExpectNothing(t, server)
			}
			n.AwaitDropped(t, n.A, map[string]uint64{program + " no_masquerade_address": 2})
		})
	}
}
