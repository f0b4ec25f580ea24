package fwd

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
)

func TestLengthsOf(t *testing.T) {
	for name, c := range map[string]struct {
		prefixes   string
		ipv4, ipv6 []uint32
	}{
		"none":                             {"", nil, nil},
		"ranges before addresses":          {"10.1.1.0/24 10.1.2.0/24 192.0.2.1/32 fd00:1::/64 2001:db8::1/128", []uint32{120, 128}, []uint32{64, 128}},
		"longest first when one is inside": {"10.1.1.0/24 10.1.1.7/32 fd00::/48", []uint32{128, 120}, []uint32{48}},
		"inside, but not side by side":     {"10.0.0.0/8 10.1.0.0/16 10.2.0.0/16 10.200.0.0/24", []uint32{120, 112, 104}, nil},
		"everything holds all":             {"0.0.0.0/0 192.0.2.1/32 ::/0", []uint32{128, 96}, []uint32{0}},
	} {
		t.Run(name, func(t *testing.T) {
			lengths, err := lengthsOf(parsePrefixes(c.prefixes))
			if err != nil {
				t.Fatal(err)
			}
			for family, want := range [][]uint32{c.ipv4, c.ipv6} {
				if got := lengths[family].PrefixLen[:lengths[family].Count]; !slices.Equal(got, want) {
					t.Errorf("family %d: lengths %v, want %v", family, got, want)
				}
			}
		})
	}
}

func TestLengthsOfMasks(t *testing.T) {
	lengths, err := lengthsOf(parsePrefixes("10.0.0.0/8 fd00::/20"))
	if err != nil {
		t.Fatal(err)
	}
	for family, want := range []string{"ffff:ffff:ffff:ffff:ffff:ffff:ff00:0", "ffff:f000::"} {
		if got := lengths[family].Mask[0].Addr(); got != netip.MustParseAddr(want) {
			t.Errorf("mask %v, want %v", got, want)
		}
	}
}

func TestLengthsOfTooMany(t *testing.T) {
	var prefixes []string
	for bits := 8; bits <= 8+bpfMaxLengths; bits++ {
		prefixes = append(prefixes, fmt.Sprintf("%d.0.0.0/%d", bits, bits))
	}
	if _, err := lengthsOf(parsePrefixes(strings.Join(prefixes, " "))); err == nil || !strings.Contains(err.Error(), "the maximum is 16") {
		t.Errorf("error is %v", err)
	}
}

// bpfMaxLengths is the datapath's maximum number of lengths.
const bpfMaxLengths = len(bpf.PrefixLengths{}.PrefixLen)

func parsePrefixes(list string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range strings.Fields(list) {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}
