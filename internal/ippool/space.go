// Package ippool decides which addresses an IPPool may give, which pods may have them, and how many of them one namespace
// may have. It is pure.
package ippool

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"sort"

	"go4.org/netipx"
)

// Space is a list of addresses of one family, in order. The zero value is empty.
type Space struct {
	ranges []netipx.IPRange
	// starts are the indices of the first addresses of the ranges.
	starts []uint64
	size   uint64
}

// NewSpace makes a Space of sorted ranges that do not overlap.
func NewSpace(ranges []netipx.IPRange) Space {
	s := Space{ranges: ranges}
	for _, r := range ranges {
		s.starts = append(s.starts, s.size)
		s.size = min(s.size+sizeOf(r), math.MaxInt64)
	}
	return s
}

// sizeOf is the number of addresses of a range, at most math.MaxInt64.
func sizeOf(r netipx.IPRange) uint64 {
	high, low := halves(r.From())
	lastHigh, lastLow := halves(r.To())
	difference, borrow := bits.Sub64(lastLow, low, 0)
	if above, _ := bits.Sub64(lastHigh, high, borrow); above > 0 || difference >= math.MaxInt64 {
		return math.MaxInt64
	}
	return difference + 1
}

func halves(a netip.Addr) (high, low uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// Size is the number of addresses, at most math.MaxInt64.
func (s Space) Size() int64 { return int64(s.size) }

// At gives the address with an index below Size.
func (s Space) At(index uint64) netip.Addr {
	at := sort.Search(len(s.starts), func(i int) bool { return s.starts[i] > index }) - 1
	high, low := halves(s.ranges[at].From())
	low, carry := bits.Add64(low, index-s.starts[at], 0)
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high+carry)
	binary.BigEndian.PutUint64(b[8:], low)
	if s.ranges[at].From().Is4() {
		return netip.AddrFrom16(b).Unmap()
	}
	return netip.AddrFrom16(b)
}

// Contains reports whether an address is in the space.
func (s Space) Contains(a netip.Addr) bool {
	at, found := slices.BinarySearchFunc(s.ranges, a, func(r netipx.IPRange, a netip.Addr) int { return r.From().Compare(a) })
	return found || at > 0 && s.ranges[at-1].Contains(a)
}

// Free gives an address that is not taken; ok is false if there is none. The search starts at an index that a seed
// decides, so that agents with different seeds rarely meet. taken must report at most count addresses of the space.
func (s Space) Free(seed uint64, count int64, taken func(netip.Addr) bool) (addr netip.Addr, ok bool) {
	if s.size == 0 {
		return addr, false
	}
	index := seed % s.size
	for range min(uint64(count)+1, s.size) {
		if addr = s.At(index); !taken(addr) {
			return addr, true
		}
		if index++; index == s.size {
			index = 0
		}
	}
	return netip.Addr{}, false
}
