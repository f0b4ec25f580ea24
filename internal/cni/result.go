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

// result says what ADD made: the two ends of the pair, the addresses on the pod's end, and for each
// family the default route.
func result(pair device.Pair, netns string, cfg device.PodConfig, dns types.DNS) *current.Result {
	r := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: []*current.Interface{
			{Name: pair.HostName, Mac: pair.HostMAC.String(), Mtu: cfg.MTU},
			{Name: pair.PodName, Mac: pair.PodMAC.String(), Mtu: cfg.MTU, Sandbox: netns},
		},
		DNS: dns,
	}
	for i, prefix := range cfg.Addresses {
		gateway := net.IP(cfg.Gateways[i].AsSlice())
		r.IPs = append(r.IPs, &current.IPConfig{Interface: current.Int(podInterface), Address: ipNet(prefix), Gateway: gateway})
		r.Routes = append(r.Routes, &types.Route{Dst: defaultOf(prefix.Addr()), GW: gateway})
	}
	return r
}

func ipNet(prefix netip.Prefix) net.IPNet {
	addr := prefix.Addr()
	return net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), addr.BitLen())}
}

// defaultOf is the prefix of everything in the address's family.
func defaultOf(addr netip.Addr) net.IPNet {
	if addr.Is4() {
		return ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	}
	return ipNet(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}
