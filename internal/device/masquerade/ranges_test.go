package masquerade

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func prefixes(list ...string) (parsed []netip.Prefix) {
	for _, one := range list {
		parsed = append(parsed, netip.MustParsePrefix(one))
	}
	return parsed
}

func TestRangesOf(t *testing.T) {
	tests := []struct {
		name     string
		prefixes []netip.Prefix
		ipv4     bool
		want     string
	}{
		{"none", nil, true, ""},
		{"other family", prefixes("fd00::/64"), true, ""},
		{"one", prefixes("10.1.0.0/24"), true, "10.1.0.0-10.1.0.255"},
		{"host bits", prefixes("10.1.0.77/24"), true, "10.1.0.0-10.1.0.255"},
		{"twice", prefixes("10.1.0.0/24", "10.1.0.0/24"), true, "10.1.0.0-10.1.0.255"},
		{"contained", prefixes("10.1.0.0/16", "10.1.7.0/24", "10.1.255.255/32"), true, "10.1.0.0-10.1.255.255"},
		{"adjacent", prefixes("10.1.1.0/24", "10.1.0.0/24"), true, "10.1.0.0-10.1.1.255"},
		{"apart", prefixes("10.1.2.0/24", "10.1.0.0/24"), true, "10.1.0.0-10.1.0.255 10.1.2.0-10.1.2.255"},
		{"everything", prefixes("0.0.0.0/0", "10.0.0.0/8"), true, "0.0.0.0-255.255.255.255"},
		{"the highest", prefixes("255.255.255.255/32", "255.255.255.255/32"), true, "255.255.255.255-255.255.255.255"},
		{"IPv6", prefixes("fd00::/64", "10.0.0.0/8", "ff00::/8"), false, "fd00::-fd00::ffff:ffff:ffff:ffff ff00::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"mapped", prefixes("::ffff:10.1.0.0/120"), true, "10.1.0.0-10.1.0.255"},
	}
	for _, test := range tests {
		var got []string
		for _, r := range rangesOf(test.prefixes, test.ipv4) {
			got = append(got, r.first.String()+"-"+r.last.String())
		}
		if joined := strings.Join(got, " "); joined != test.want {
			t.Errorf("%s: got %s, want %s", test.name, joined, test.want)
		}
	}
}

// Whatever the prefixes: the ranges cover exactly their addresses, and the kernel's form of them, in any order,
// reads back as the same ranges.
func TestRangesCoverAndReadBack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var list []netip.Prefix
		for range random.IntN(8) {
			addr := netip.AddrFrom4([4]byte{byte(random.IntN(2)) * 255, byte(random.IntN(2)) * 255, byte(random.IntN(2)) * 255, byte(random.IntN(256))})
			list = append(list, netip.PrefixFrom(addr, random.IntN(33)).Masked())
		}
		ranges := rangesOf(list, true)
		elements := set{ranges: ranges}.elements()
		random.Shuffle(len(elements), func(i, j int) { elements[i], elements[j] = elements[j], elements[i] })
		if back := rangesFrom(elements); !slices.Equal(back, ranges) {
			t.Fatalf("%v became %v, read back %v", list, ranges, back)
		}
		for range 50 {
			addr := netip.AddrFrom4([4]byte{byte(random.IntN(2)) * 255, byte(random.IntN(2)) * 255, byte(random.IntN(256)), byte(random.IntN(256))})
			inPrefix := slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(addr) })
			inRange := slices.ContainsFunc(ranges, func(r addressRange) bool { return !addr.Less(r.first) && !r.last.Less(addr) })
			if inPrefix != inRange {
				t.Fatalf("%s in %v: %v, in %v: %v", addr, list, inPrefix, ranges, inRange)
			}
		}
	}
}
