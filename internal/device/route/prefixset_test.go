package route

import (
	"net/netip"
	"testing"
)

// The linear search and the set give the same results.
func TestContainsFunc(t *testing.T) {
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.1.0.9/24"), netip.MustParsePrefix("10.2.0.0/16"), netip.MustParsePrefix("fd00:1::/64")}
	for prefix, want := range map[string]bool{
		"10.1.0.0/24": true, "10.1.0.7/32": true, "10.1.0.0/16": false, "10.1.1.0/24": false, "10.2.9.0/24": true, "0.0.0.0/0": false,
		"fd00:1::/64": true, "fd00:1::7/128": true, "fd00::/16": false, "::/0": false,
	} {
		for _, lookups := range []int{1, fewLookups + 1} {
			if got := containsFunc(prefixes, lookups)(netip.MustParsePrefix(prefix)); got != want {
				t.Errorf("%s is within %v: %t, want %t (%d lookups)", prefix, prefixes, got, want, lookups)
			}
		}
	}
}
