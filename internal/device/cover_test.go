package device

import (
	"net/netip"
	"testing"
)

// Few questions and many have the same answers.
func TestCover(t *testing.T) {
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.1.0.9/24"), netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd00:1::/64")}
	for asked, want := range map[string]bool{
		"10.1.0.0/24": true, "10.1.0.7/32": true, "10.1.0.0/16": false, "10.1.1.0/24": false, "10.2.9.0/24": true, "0.0.0.0/0": false,
		"fd00:1::/64": true, "fd00:1::7/128": true, "fd00::/16": false, "::/0": false,
	} {
		for _, count := range []int{1, fewAsked + 1} {
			if got := coverOf(prefixes, count)(netip.MustParsePrefix(asked)); got != want {
				t.Errorf("%s is within %v: %t, want %t (for %d questions)", asked, prefixes, got, want, count)
			}
		}
	}
}
