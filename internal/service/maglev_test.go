package service

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func someAddresses(n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], 10<<24|uint32(i)*3)
		all[i] = netip.AddrFrom4(b)
	}
	return all
}

// The example of the paper, table 1: three backends in a table of seven, and the same after the second is gone.
func TestMaglevPaper(t *testing.T) {
	turns := func() []turn { return []turn{{3, 4, 0}, {0, 2, 1}, {3, 1, 2}} }
	if got, want := fill(turns(), 7), []uint16{1, 0, 1, 0, 2, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("three backends: got %v, want %v", got, want)
	}
	if got, want := fill(slices.Delete(turns(), 1, 2), 7), []uint16{0, 0, 0, 0, 2, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("two backends: got %v, want %v", got, want)
	}
}

// Nodes of different versions must agree: these tables must never change.
func TestMaglevVectors(t *testing.T) {
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	for _, c := range []struct {
		addresses []netip.Addr
		want      []uint16
	}{
		{nil, nil},
		{addrs("10.1.0.5"), []uint16{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
		{addrs("10.1.0.5", "10.1.0.6", "10.1.1.7"), []uint16{1, 0, 2, 0, 1, 0, 0, 2, 1, 0, 2, 1, 2}},
		{addrs("fd00::5", "fd00::6", "fd00:1::7"), []uint16{1, 0, 0, 2, 2, 0, 0, 0, 1, 1, 2, 2, 1}},
	} {
		if diff := cmp.Diff(c.want, Maglev(c.addresses, 13)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.addresses, diff)
		}
	}
}

func TestMaglevBalance(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 99, 100, 1000} {
		size := MaglevSize(n)
		counts := make([]int, n)
		for _, backend := range Maglev(someAddresses(n), size) {
			counts[backend]++
		}
		// Backends take turns, so no backend has more than one entry more than another.
		if least, most := slices.Min(counts), slices.Max(counts); most-least > 1 {
			t.Errorf("%d backends have %d to %d of %d entries", n, least, most, size)
		}
	}
}

// The order of the input changes indices only.
func TestMaglevOrder(t *testing.T) {
	sorted := someAddresses(50)
	shuffled := slices.Clone(sorted)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	a, b := Maglev(sorted, 5003), Maglev(shuffled, 5003)
	for i := range a {
		if sorted[a[i]] != shuffled[b[i]] {
			t.Fatalf("entry %d is %s, or shuffled %s", i, sorted[a[i]], shuffled[b[i]])
		}
	}
	if slices.Equal(a, b) {
		t.Error("the order was not changed")
	}
}

// When one backend is removed, few entries of the others change.
func TestMaglevDisruption(t *testing.T) {
	for _, n := range []int{2, 10, 100} {
		size := MaglevSize(n)
		all := someAddresses(n)
		before := Maglev(all, size)
		for _, stopped := range []int{0, n / 2, n - 1} {
			rest := slices.Delete(slices.Clone(all), stopped, stopped+1)
			moved := 0
			for i, backend := range Maglev(rest, size) {
				if int(before[i]) != stopped && rest[backend] != all[before[i]] {
					moved++
				}
			}
			if moved > size/20 {
				t.Errorf("without backend %d of %d, %d of the %d entries of others moved", stopped, n, moved, size)
			}
		}
	}
}

// More backends than entries, or than indices.
func TestMaglevTooMany(t *testing.T) {
	if table := Maglev(someAddresses(10), 7); len(table) != 7 || len(slices.Compact(slices.Sorted(slices.Values(table)))) != 7 {
		t.Errorf("table is %v", table)
	}
	if table := Maglev(someAddresses(MaxBackends+5), 65537); len(table) != 65537 || slices.Max(table) != MaxBackends-1 {
		t.Errorf("table has %d entries", len(table))
	}
}

func TestMaglevSizes(t *testing.T) {
	for _, size := range maglevSizes {
		if !ValidMaglevSize(size) {
			t.Errorf("%d is not a prime", size)
		}
	}
	for backends, want := range map[int]int{0: 127, 1: 127, 2: 251, 10: 1021, 11: 2039, 10485: 1048573, 65535: 1048573} {
		if got := MaglevSize(backends); got != want {
			t.Errorf("%d backends have a table of %d, want %d", backends, got, want)
		}
	}
	for size, want := range map[int]bool{-7: false, 0: false, 1: false, 2: false, 3: true, 4: false, 9: false, 65537: true, 65536: false} {
		if got := ValidMaglevSize(size); got != want {
			t.Errorf("%d is valid: %t, want %t", size, got, want)
		}
	}
}

func BenchmarkMaglev(b *testing.B) {
	addresses := someAddresses(10)
	for b.Loop() {
		Maglev(addresses, MaglevSize(len(addresses)))
	}
}
