package service

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
)

// maglevSizes are the lengths of tables: the largest primes below powers of two. They are far apart, because a table of another
// length moves most connections.
var maglevSizes = [...]int{127, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131071, 262139, 524287, 1048573}

// maglevShare is the minimum number of entries for each backend; it keeps their loads within about one percent of each other.
const maglevShare = 100

// MaxBackends is the maximum number of backends of one set: an entry of a table has 16 bits.
const MaxBackends = 1<<16 - 1

// MaglevSize returns the length of the table for a number of backends: a prime with at least 100 entries for each, or the
// largest one (about a million).
func MaglevSize(backends int) int {
	for _, size := range maglevSizes {
		if size >= maglevShare*backends {
			return size
		}
	}
	return maglevSizes[len(maglevSizes)-1]
}

// ValidMaglevSize reports whether a table can have that length: it must be a prime for every backend to visit all entries.
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

// turn is the next entry that one backend prefers.
type turn struct {
	at, step int
	backend  uint16
}

// newTurn gives a backend its own permutation of all entries: a first entry and a step that, being smaller than a prime, visits
// every other one. The hash only has to spread well and to be the same everywhere and forever.
func newTurn(addr netip.Addr, size int) turn {
	bytes := addr.As16()
	sum := sha256.Sum256(bytes[:])
	return turn{
		at:   int(binary.BigEndian.Uint64(sum[0:8]) % uint64(size)),
		step: int(binary.BigEndian.Uint64(sum[8:16])%uint64(size-1)) + 1,
	}
}

// fill lets the backends in turn take the next free entry of their permutation until none is left. It consumes turns.
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
