package ipseckeys

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/beeline-cni/beeline/internal/device/ipsec"
)

// End is one end of a tunnel.
type End struct {
	// Node is its name.
	Node string
	// Epoch is what the node has announced: it has never used another key with it.
	Epoch string
}

// Lengths of what is derived, in bytes.
const (
	saltSize = 4 // RFC 4106, 4
	spiSize  = 4
)

// spiBit keeps SPIs apart from the reserved ones (RFC 4303, 2.1), and from those that are numbered from the beginning.
const spiBit = 1 << 31

// tunnel derives a tunnel of one direction by HKDF (RFC 5869) with SHA-256. Both ends derive the same.
func (k Key) tunnel(from, to End, ipv6 bool) ipsec.Tunnel {
	var info []byte
	for _, part := range []string{"Beeline IPsec 1", fmt.Sprint(k.Bits, k.Generation, ipv6), from.Node, from.Epoch, to.Node, to.Epoch} {
		info = append(binary.BigEndian.AppendUint32(info, uint32(len(part))), part...)
	}
	size := k.Bits/8 + saltSize
	out, err := hkdf.Key(sha256.New, k.Secret, nil, string(info), size+spiSize)
	if err != nil {
		panic(err) // for more than 8,160 bytes (RFC 5869, 2.3), or a short key in a FIPS 140 mode: ReadKeys rejects it
	}
	return ipsec.Tunnel{SPI: binary.BigEndian.Uint32(out[size:]) | spiBit, Key: out[:size], IPv6: ipv6}
}

// tunnels derives those of both families.
func (k Key) tunnels(from, to End) []ipsec.Tunnel {
	return []ipsec.Tunnel{k.tunnel(from, to, false), k.tunnel(from, to, true)}
}
