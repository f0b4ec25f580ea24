package policies

import (
	"encoding/binary"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// blocksOfPolicy is how many entries one NetworkPolicy has at most: an API server stores no object of more than about
// 1.5 MB.
const blocksOfPolicy = 10000

// blocks are so many different prefixes. The first holds all addresses; of the others, which hold none of a lab, every
// second is a single address and the rest have from 24 to 30 bits.
func blocks(n int) []netip.Prefix {
	list := []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
	for i := 1; i < n; i++ {
		if i%2 == 0 {
			list = append(list, Only(ipv4(11<<24+uint32(i)*97)))
		} else {
			list = append(list, netip.PrefixFrom(ipv4(32<<24+uint32(i/2)*256), 24+i/2%7))
		}
	}
	return list
}

func ipv4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// blockPolicies allow both directions between so many blocks and the pods with labels, on ports.
func blockPolicies(n int, labels map[string]string, ports []networkingv1.NetworkPolicyPort) []*networkingv1.NetworkPolicy {
	var list []*networkingv1.NetworkPolicy
	for all := blocks(n); len(all) > 0; {
		part := all[:min(len(all), blocksOfPolicy)]
		all = all[len(part):]
		var peers []networkingv1.NetworkPolicyPeer
		for _, p := range part {
			peers = append(peers, Block(p))
		}
		list = append(list, Policy(Default, numbered("blocks", len(list)), labels, Ingress(ports, peers...), Egress(ports, peers...)))
	}
	return list
}
