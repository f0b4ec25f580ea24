package testbed

import "net/netip"

// All labs use the same addresses: namespaces keep labs apart. Within a lab the third byte (the third group in IPv6) of
// an address of pods is the node, and of an address on the wire the subnet.

var (
	// PodNetworkIPv4 and PodNetworkIPv6 hold the pod CIDRs of all nodes of a lab and nothing else.
	PodNetworkIPv4 = netip.MustParsePrefix("10.77.0.0/16")
	PodNetworkIPv6 = netip.MustParsePrefix("fd77:1::/32")

	// ClientNetworkIPv4 and ClientNetworkIPv6 hold addresses of further clients outside of the cluster, behind the one
	// that Lab.Client returns: the ranges that RFC 2544 and RFC 5180 keep for benchmarks. Nodes of a lab with Outside
	// have routes to them.
	ClientNetworkIPv4 = netip.MustParsePrefix("198.18.0.0/15")
	ClientNetworkIPv6 = netip.MustParsePrefix("2001:2::/48")
)

// The numbers of hosts in every subnet of the wire that are no nodes.
const (
	clientHost = 250
	routerHost = 254
)

// wire are the addresses of a host in a subnet of the wire (from 0) with its prefix length, IPv4 first. The hosts from 1
// on are the nodes.
func (o Options) wire(subnet, host int) []netip.Prefix {
	return o.families(
		netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, 77 + byte(subnet), byte(host)}), 24),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 7: byte(subnet), 15: byte(host)}), 64))
}

// podCIDRs are those of node i (from 1), IPv4 first.
func (o Options) podCIDRs(i int) []netip.Prefix {
	return o.families(
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(i), 0}), 24),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 3: 0x01, 5: byte(i)}), 64))
}

// families are the prefixes of the address families that a lab has.
func (o Options) families(ipv4, ipv6 netip.Prefix) []netip.Prefix {
	if o.IPv6 {
		return []netip.Prefix{ipv4, ipv6}
	}
	return []netip.Prefix{ipv4}
}
