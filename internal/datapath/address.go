package datapath

import (
	"encoding/binary"
	"net/netip"
)

// addressOf gives the table form of an address: 16 bytes in network order, IPv4 mapped into IPv6.
func addressOf(a netip.Addr) bpfAddress {
	b := a.As16()
	var out bpfAddress
	for i := range out.Word {
		out.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

// addr is the inverse of addressOf; the zero address comes back as the zero Addr.
func (a bpfAddress) addr() netip.Addr {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	if b == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(b).Unmap()
}
