package bpf

import (
	"encoding/binary"
	"net/netip"
)

// AddressOf is the form of an address in maps: 16 bytes in network order, IPv4 mapped into IPv6.
func AddressOf(a netip.Addr) Address {
	b := a.As16()
	var out Address
	for i := range out.Word {
		out.Word[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return out
}

// Addr is the inverse of AddressOf; the zero address comes back as the zero Addr.
func (a Address) Addr() netip.Addr {
	var b [16]byte
	for i, w := range a.Word {
		binary.NativeEndian.PutUint32(b[4*i:], w)
	}
	if b == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(b).Unmap()
}

func BackendOf(b netip.AddrPort) Backend {
	return Backend{Address: AddressOf(b.Addr()), Port: NetworkOrder(b.Port())}
}

// TupleOf is the tuple of packets between two ends.
func TupleOf(source, destination netip.AddrPort, protocol uint8) Tuple {
	return Tuple{
		Source: AddressOf(source.Addr()), Destination: AddressOf(destination.Addr()),
		SourcePort: NetworkOrder(source.Port()), DestinationPort: NetworkOrder(destination.Port()), Protocol: protocol,
	}
}

// NetworkOrder converts a port to network byte order and back.
func NetworkOrder(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// HostOrder converts a big-endian number to host byte order and back.
func HostOrder(n uint32) uint32 {
	return binary.NativeEndian.Uint32(binary.BigEndian.AppendUint32(nil, n))
}
