package policies

import (
	"encoding/binary"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// blocksOfPolicy is how many entries one NetworkPolicy has at most: an API server stores no object of more than about
// 1.5 MB.
const blocksOfPolicy = 10000

const (
	// narrow is how many bits the longest of the prefixes have, around the addresses that are to be allowed.
	narrow = 30
	// slot is what every other prefix has for itself, and widest how many bits the shortest of them have.
	slot   = 256
	widest = 24
	// firstPrefix is the network 10.0.0.0, which has the pods of a lab, firstSingle a network beside it.
	firstPrefix = 10 << 24
	firstSingle = 11 << 24
)

// blocks are so many prefixes none of which holds another, so that each is an entry of its own wherever addresses are
// looked up. Half of them are single addresses, the others have from 24 to 30 bits and lie side by side in the network
// of the pods. Each of the addresses that are to be allowed is in one of 30 bits, all of whose neighbours are there
// too: who looks for it in a tree goes as deep as any tree of so many goes.
func blocks(n int, allowed ...netip.Addr) []netip.Prefix {
	list := make([]netip.Prefix, 0, n)
	taken := map[uint32]bool{} // slots
	for _, a := range allowed {
		first := number4(a) / slot * slot
		if taken[first] {
			continue
		}
		taken[first] = true
		for at := first; at < first+slot; at += 1 << (32 - narrow) {
			list = append(list, netip.PrefixFrom(ipv4(at), narrow))
		}
	}
	singles := n / 2
	prefixes := n - singles
	for i, at := 0, uint32(firstPrefix); len(list) < prefixes; at += slot {
		if !taken[at] {
			list = append(list, netip.PrefixFrom(ipv4(at), widest+i%(narrow-widest+1)))
			i++
		}
	}
	for i := range singles {
		list = append(list, Only(ipv4(firstSingle+uint32(i)*97)))
	}
	return list
}

func ipv4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func number4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

// blockPolicies allow both directions between blocks and the pods with labels, on ports.
func blockPolicies(blocks []netip.Prefix, labels map[string]string, ports []networkingv1.NetworkPolicyPort) []*networkingv1.NetworkPolicy {
	var list []*networkingv1.NetworkPolicy
	for len(blocks) > 0 {
		part := blocks[:min(len(blocks), blocksOfPolicy)]
		blocks = blocks[len(part):]
		var peers []networkingv1.NetworkPolicyPeer
		for _, p := range part {
			peers = append(peers, Block(p))
		}
		list = append(list, Policy(Default, numbered("blocks", len(list)), labels, Ingress(ports, peers...), Egress(ports, peers...)))
	}
	return list
}
