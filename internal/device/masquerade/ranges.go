package masquerade

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
)

// addressRange is an inclusive range of addresses of one family.
type addressRange struct{ first, last netip.Addr }

// rangesOf returns the fewest ranges that cover the prefixes of one family, sorted. An interval set refuses
// elements that overlap, and `nft` shows a range that is a prefix as a prefix.
func rangesOf(prefixes []netip.Prefix, ipv4 bool) []addressRange {
	var all []addressRange
	for _, prefix := range prefixes {
		prefix = unmap(prefix).Masked()
		if prefix.Addr().Is4() == ipv4 {
			all = append(all, addressRange{prefix.Addr(), lastOf(prefix)})
		}
	}
	slices.SortFunc(all, func(a, b addressRange) int { return a.first.Compare(b.first) })
	var merged []addressRange
	for _, next := range all {
		if n := len(merged); n > 0 && touches(merged[n-1], next) {
			if merged[n-1].last.Less(next.last) {
				merged[n-1].last = next.last
			}
			continue
		}
		merged = append(merged, next)
	}
	return merged
}

// touches tells whether next, which does not begin before r, overlaps r or follows it without a gap.
func touches(r, next addressRange) bool {
	after := r.last.Next() // the zero Addr after the highest address
	return !after.IsValid() || next.first.Compare(after) <= 0
}

func unmap(prefix netip.Prefix) netip.Prefix {
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix
}

// lastOf returns the highest address of a prefix.
func lastOf(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

// elements writes a range as the kernel keeps it: where it begins and where it has ended. A range that
// reaches the highest address has no end.
func (r addressRange) elements() []nftables.SetElement {
	elements := []nftables.SetElement{{Key: r.first.AsSlice()}}
	if after := r.last.Next(); after.IsValid() {
		elements = append(elements, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
	}
	return elements
}

// rangesFrom is the reverse of elements. The kernel lists elements in no certain order, and may begin with
// an end at the lowest address that belongs to nothing.
func rangesFrom(elements []nftables.SetElement) []addressRange {
	type bound struct {
		at  netip.Addr
		end bool
	}
	var bounds []bound
	for _, element := range elements {
		if at, ok := netip.AddrFromSlice(element.Key); ok {
			bounds = append(bounds, bound{at, element.IntervalEnd})
		}
	}
	slices.SortFunc(bounds, func(a, b bound) int {
		if order := a.at.Compare(b.at); order != 0 {
			return order
		}
		if a.end == b.end {
			return 0
		} else if a.end {
			return -1 // one range ends where the next begins
		}
		return 1
	})
	var ranges []addressRange
	open := false
	for _, b := range bounds {
		switch {
		case b.end && open:
			ranges[len(ranges)-1].last = b.at.Prev()
			open = false
		case !b.end:
			ranges = append(ranges, addressRange{b.at, highest(b.at)})
			open = true
		}
	}
	return ranges
}

func highest(addr netip.Addr) netip.Addr {
	return lastOf(netip.PrefixFrom(addr, 0))
}
