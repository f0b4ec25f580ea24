package testbed

import "net/netip"

// All labs use the same addresses: namespaces keep labs apart. Within a lab the third byte (the third
// group in IPv6) is the node.

// PodNetworkIPv4 and PodNetworkIPv6 hold the pod CIDRs of all nodes of a lab and nothing else.
var (
	PodNetworkIPv4 = netip.MustParsePrefix("10.77.0.0/16")
	PodNetworkIPv6 = netip.MustParsePrefix("fd77:1::/32")
)

// wireIPv4 is the address of node i (from 1) in a subnet (from 0) with the prefix length of the wire.
func wireIPv4(subnet, i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 77 + byte(subnet), byte(i)}), 24)
}

func wireIPv6(subnet, i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 7: byte(subnet), 15: byte(i)}), 64)
}

// routerHost is the router's number in every subnet, above those of all nodes.
const routerHost = 254

// routers are the addresses of the router in a subnet, IPv4 first.
func (o Options) routers(subnet int) []netip.Prefix {
	addresses := []netip.Prefix{wireIPv4(subnet, routerHost)}
	if o.IPv6 {
		addresses = append(addresses, wireIPv6(subnet, routerHost))
	}
	return addresses
}

func podCIDRIPv4(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), 0}), 24)
}

func podCIDRIPv6(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 3: 0x01, 5: byte(i)}), 64)
}
