package bpf

import (
	"net/netip"
)

func RouteKeyOf(p netip.Prefix) RouteKey {
	return RouteKey{PrefixLen: PrefixLen(p), Address: AddressOf(p.Masked().Addr())}
}

// PrefixLen is the length of a prefix in maps, where IPv4 addresses are mapped into IPv6.
func PrefixLen(p netip.Prefix) uint32 {
	if p.Addr().Is4() {
		return uint32(p.Bits() + MappedIPv4.Bits())
	}
	return uint32(p.Bits())
}

func (k RouteKey) Prefix() netip.Prefix {
	a := k.Address.Addr()
	if !a.IsValid() {
		a = netip.IPv6Unspecified()
	}
	if a.Is4() {
		return netip.PrefixFrom(a, int(k.PrefixLen)-96)
	}
	return netip.PrefixFrom(a, int(k.PrefixLen))
}

// MappedIPv4 holds the IPv4 addresses in maps (RFC 4291, 2.5.5.2).
var MappedIPv4 = netip.MustParsePrefix("::ffff:0.0.0.0/96")
