package endpoint

import "net/netip"

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func addrs(all ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range all {
		out = append(out, addr(s))
	}
	return out
}

func prefixes(all ...string) []netip.Prefix {
	var p []netip.Prefix
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}
