package cni

import (
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/beeline-cni/beeline/internal/device"
)

// podInterface is the index of the pod's end in a result's interfaces.
const podInterface = 1

// result returns the result of ADD: the two ends of the device, the addresses of the pod's end, and a default route for
// each family; for a second interface the routes to its networks.
func result(dev device.PodDevice, netns string, cfg device.PodConfig, dns types.DNS) *current.Result {
	r := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: dev.HostName, Mac: dev.HostMAC.String(), Mtu: cfg.MTU},
			{Name: dev.PodName, Mac: dev.PodMAC.String(), Mtu: cfg.MTU, Sandbox: netns},
		},
		DNS: dns,
	}
	for _, prefix := range cfg.Addresses {
		gateway := net.IP(cfg.NextHop(prefix.Addr()).AsSlice())
		r.IPs = append(r.IPs, &current.IPConfig{Interface: current.Int(podInterface), Address: ipNet(prefix), Gateway: gateway})
		if !cfg.Second {
			r.Routes = append(r.Routes, &types.Route{Dst: defaultOf(prefix.Addr()), GW: gateway})
			continue
		}
		for _, network := range cfg.Networks {
			if network.Addr().Is4() == prefix.Addr().Is4() {
				r.Routes = append(r.Routes, &types.Route{Dst: ipNet(network), GW: gateway})
			}
		}
	}
	return r
}

func ipNet(prefix netip.Prefix) net.IPNet {
	addr := prefix.Addr()
	return net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), addr.BitLen())}
}

// defaultOf returns the default route's prefix in the address's family.
func defaultOf(addr netip.Addr) net.IPNet {
	if addr.Is4() {
		return ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	}
	return ipNet(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}
