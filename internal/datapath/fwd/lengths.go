package fwd

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

// lengthsOf lists the prefix lengths of each family, IPv4 first, in the order in which the datapath tries
// them. Where prefixes lie within others the longest has to come first. Where none does, any order is right,
// and the lengths of ranges come before those of single addresses: most packets go to pods.
func lengthsOf(prefixes []netip.Prefix) ([2]bpf.PrefixLengths, error) {
	var lengths [2]bpf.PrefixLengths
	for family, ipv4 := range []bool{true, false} {
		var ours []netip.Prefix
		for _, p := range prefixes {
			if p.Addr().Is4() == ipv4 {
				ours = append(ours, p.Masked())
			}
		}
		bits := distinctBits(ours)
		if len(bits) > len(lengths[family].PrefixLen) {
			return lengths, fmt.Errorf("the cluster has prefixes of %d lengths %v; the maximum is %d", len(bits), bits, len(lengths[family].PrefixLen))
		}
		slices.Sort(bits)
		if nested(ours) {
			slices.Reverse(bits)
		}
		for i, b := range bits {
			if ipv4 {
				b += 96
			}
			lengths[family].PrefixLen[i] = uint32(b)
			lengths[family].Mask[i] = maskOf(b)
		}
		lengths[family].Count = uint32(len(bits))
	}
	return lengths, nil
}

func distinctBits(prefixes []netip.Prefix) []int {
	var bits []int
	for _, p := range prefixes {
		if !slices.Contains(bits, p.Bits()) {
			bits = append(bits, p.Bits())
		}
	}
	return bits
}

// nested reports whether one of the distinct prefixes contains another.
func nested(prefixes []netip.Prefix) bool {
	sorted := slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare)
	// In this order a prefix that contains another contains its successor.
	for i := range len(sorted) - 1 {
		if sorted[i].Contains(sorted[i+1].Addr()) {
			return true
		}
	}
	return false
}

// maskOf returns the mask of a prefix length of 128 bits.
func maskOf(bits int) bpf.Address {
	var ones [16]byte
	for i := range ones {
		ones[i] = 0xff
	}
	p := netip.PrefixFrom(netip.AddrFrom16(ones), bits)
	return bpf.AddressOf(p.Masked().Addr())
}
