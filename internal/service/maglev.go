package service

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
)

// maglevSizes are the lengths that tables have: the largest primes below powers of two. They are far apart on purpose, since a
// table of another length sends most connections elsewhere.
var maglevSizes = [...]int{127, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139, 524287, 1048573}

// maglevShare is how many entries each backend has at least, which keeps their loads within about one percent of each other.
const maglevShare = 100

// MaxBackends is how many backends one set can have: as many as entries of a table can tell apart.
const MaxBackends = 1<<16 - 1

// MaglevSize gives the length of the table for a number of backends: a prime with at least 100 entries for each, or the largest
// there is (about a million) where that is not enough.
func MaglevSize(backends int) int {
	for _, size := range maglevSizes {
		if size >= maglevShare*backends {
			return size
		}
	}
	return maglevSizes[len(maglevSizes)-1]
}

// ValidMaglevSize tells whether a table can have that length: backends take turns in all entries only if it is a prime.
func ValidMaglevSize(size int) bool {
	if size < 3 {
		return false
	}
	for divisor := 2; divisor*divisor <= size; divisor++ {
		if size%divisor == 0 {
			return false
		}
	}
	return true
}

// Maglev makes a table for consistent hashing: entry number hash % size is the index of a backend in addresses. Every backend has
// almost the same number of entries, and when one comes or goes, few entries of the others change. Which address an entry
// stands for depends on the set of addresses and the size alone, not on their order, so all nodes agree. Ports do not matter,
// so all ports of a Service can share one table.
//
// The size must be a prime (see ValidMaglevSize). Addresses beyond MaxBackends get no entry. Without addresses there is no table.
//
// Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4.
func Maglev(addresses []netip.Addr, size int) []uint16 {
	addresses = addresses[:min(len(addresses), MaxBackends)]
	if len(addresses) == 0 {
		return nil
	}
	turns := make([]turn, len(addresses))
	for i, addr := range addresses {
		turns[i] = newTurn(addr, size)
		turns[i].backend = uint16(i)
	}
	if !slices.IsSortedFunc(addresses, netip.Addr.Compare) {
		slices.SortStableFunc(turns, func(a, b turn) int { return addresses[a.backend].Compare(addresses[b.backend]) })
	}
	return fill(turns, size)
}

// turn is where one backend wants to have its next entry.
type turn struct {
	at, step int
	backend  uint16
}

// newTurn gives a backend its own order of all entries: an entry to begin with, and a step that, being less than a prime, leads
// to every other one. The checksum only has to spread well and to be the same everywhere and for ever.
func newTurn(addr netip.Addr, size int) turn {
	bytes := addr.As16()
	sum := sha256.Sum256(bytes[:])
	return turn{
		at:   int(binary.BigEndian.Uint64(sum[0:8]) % uint64(size)),
		step: int(binary.BigEndian.Uint64(sum[8:16])%uint64(size-1)) + 1,
	}
}

// fill lets the backends in turn take the first free entry of their own order until none is left. It uses turns up.
func fill(turns []turn, size int) []uint16 {
	table, taken := make([]uint16, size), make([]bool, size)
	for filled := 0; ; {
		for i := range turns {
			t := &turns[i]
			for taken[t.at] {
				t.forward(size)
			}
			table[t.at], taken[t.at] = t.backend, true
			t.forward(size)
			if filled++; filled == size {
				return table
			}
		}
	}
}

func (t *turn) forward(size int) {
	if t.at += t.step; t.at >= size {
		t.at -= size
	}
}
