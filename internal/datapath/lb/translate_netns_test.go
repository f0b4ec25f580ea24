package lb_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// A pod reaches a ClusterIP that its socket did not translate, with the backend on another node, on this node, in the
// pod itself, on the node, or external.
func TestLateServices(t *testing.T) {
	for _, routing := range []bool{true, false} {
		t.Run(fmt.Sprintf("ebpf=%t", routing), func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: routing, Masquerade: true, Services: true}})
			for _, family := range fixtures.Families {
				for name, backend := range n.Places(family) {
					t.Run(fmt.Sprintf("IPv%d/%s", family, name), func(t *testing.T) {
						n.ReachesThroughService(t, backend, family)
					})
				}
			}
			n.DropsNothing(t)
		})
	}
}

// An external client keeps its address towards a backend on the node that it has reached.
func TestNodePortLocalBackend(t *testing.T) {
	for _, routing := range []bool{true, false} {
		t.Run(fmt.Sprintf("ebpf=%t", routing), func(t *testing.T) {
			n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: routing, Masquerade: true, Services: true}})
			for _, family := range fixtures.Families {
				n.A.Serve(t, n.A.Addr(family), n.A1.Addr(family))
				seen := n.A1.ListenUDP(t, n.A1.Addr(family))
				client := n.External.DialPort(t, "udp", netip.AddrPortFrom(n.A.Addr(family), fixtures.ServicePort))
				fixtures.Write(t, client, "who am I")
				_, from, err := seen.ReadFromUDPAddrPort(make([]byte, 100))
				if err != nil {
					t.Fatal(err)
				}
				if from.Addr().Unmap() != n.ExternalOnSwitch(family) {
					t.Errorf("IPv%d: the backend sees %s, not the client", family, from)
				}
				seen.Close()
				n.A1.ServeTCP(t, n.A1.Addr(family))
				n.A1.ServeUDP(t, n.A1.Addr(family))
				netlab.CarriesService(t, *n.External, n.A.Addr(family))
				// So does a pod of another node, whose packets and replies are direct otherwise.
				netlab.CarriesService(t, n.B1.Netns, n.A.Addr(family))
			}
			n.DropsNothing(t)
		})
	}
}
