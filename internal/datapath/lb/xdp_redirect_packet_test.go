package lb_test

import (
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
)

// A packet whose backend is behind another uplink leaves by that one, translated and with its MACs, where XDP may send through it;
// else tc has it, untouched.
func TestXDPBetweenUplinks(t *testing.T) {
	r := harness.NewServices(t, config.Datapath{})
	other := r.Netns.Devices["blpoda2"] // any device that is there
	secondMAC := fixtures.Mac(7, 7)
	routes := fixtures.RoutesOfNodeA(r.Netns.Devices["eth0"], r.Netns.Devices["tunnel"])
	for p, route := range routes {
		if route.Kind == fwd.RouteRemote && p.Contains(fixtures.PodB.Addr(4+p.Addr().BitLen()/64)) {
			route.Interface, route.UplinkMAC = other, secondMAC
			routes[p] = route
		}
	}
	if _, err := r.D.Routes.Sync(routes); err != nil {
		t.Fatal(err)
	}
	uplinks := r.D.Objects.Maps.XdpUplinks
	allow := func(yes bool) {
		t.Helper()
		var err error
		r.Netns.Do(func() { // the kernel looks for the device in the calling thread's namespace
			if yes {
				err = uplinks.Put(uint32(other), uint32(other))
			} else {
				err = uplinks.Delete(uint32(other))
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	fixtures.EachTransportAtXDP(func(name string, family int, protocol uint8, transport func(fixtures.Packet, netip.AddrPort, netip.AddrPort) fixtures.Packet) {
		f := fixtures.FlowOf(family)
		r.Enter(t, f, protocol)
		in, out := transport(fixtures.Eth(fixtures.Router, fixtures.NodeA.Mac), f.Client, f.Frontend), transport(fixtures.Eth(secondMAC, fixtures.NodeB.Mac), f.Node, f.Backend).Ttl(63)
		r.CheckOne(t, harness.Untouched(name+" by a device that XDP may not send through", in.Bytes()))
		allow(true)
		r.CheckOne(t, turned(name, in, out))
		allow(false)
	})
}
