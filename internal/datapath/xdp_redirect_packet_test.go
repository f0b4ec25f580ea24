package datapath

import (
	"net/netip"
	"testing"
)

// A packet whose backend is behind another uplink leaves by that one, translated and with its MACs, where XDP may send through it;
// else tc has it, untouched.
func TestXDPBetweenUplinks(t *testing.T) {
	r := newServiceRig(t, Config{})
	other := r.stage.devices["blpoda2"] // any device that is there
	secondMAC := mac(7, 7)
	routes := routesOfNodeA(r.stage.devices["eth0"], r.stage.devices["tunnel"])
	for p, route := range routes {
		if route.Kind == RouteRemote && p.Contains(podB.addr(4+p.Addr().BitLen()/64)) {
			route.Interface, route.UplinkMAC = other, secondMAC
			routes[p] = route
		}
	}
	if _, err := r.d.Routes.Sync(routes); err != nil {
		t.Fatal(err)
	}
	uplinks := r.d.objects.maps.XdpUplinks
	allow := func(yes bool) {
		t.Helper()
		var err error
		r.stage.do(func() { // the kernel looks for the device in the calling thread's namespace
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
	eachTransportAtXDP(func(name string, family int, protocol uint8, transport func(packet, netip.AddrPort, netip.AddrPort) packet) {
		f := flowOf(family)
		r.enter(t, f, protocol)
		in, out := transport(eth(router, nodeA.mac), f.client, f.frontend), transport(eth(secondMAC, nodeB.mac), f.node, f.backend).ttl(63)
		r.checkOne(t, untouched(name+" by a device that XDP may not send through", in.bytes()))
		allow(true)
		r.checkOne(t, turned(name, in, out))
		allow(false)
	})
}
