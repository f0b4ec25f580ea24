package frame

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestProperPackets compares with packets of the kernel's stack.
func TestProperPackets(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	c, d := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	for name, test := range map[string]struct {
		got  []byte
		want string
	}{
		"UDP over IPv4": {
			IP{Source: a, Destination: b, Protocol: unix.IPPROTO_UDP, Payload: UDP(netip.AddrPortFrom(a, 1), netip.AddrPortFrom(b, 2), []byte("ab"))}.Packet(),
			"4500001e00000000401166cd0a0000010a000002" + "00010002000a8a72" + "6162",
		},
		"TCP over IPv6": {
			IP{Source: c, Destination: d, Protocol: unix.IPPROTO_TCP, Payload: TCP(netip.AddrPortFrom(c, 1), netip.AddrPortFrom(d, 2), Segment{Flags: SYN}, nil)}.Packet(),
			"6000000000140640fd000000000000000000000000000001fd000000000000000000000000000002" + "0001000200000000000000005002ffffb5db0000",
		},
	} {
		if want, err := hex.DecodeString(test.want); err != nil || !bytes.Equal(test.got, want) {
			t.Errorf("%s: %x, want %s (%v)", name, test.got, test.want, err)
		}
	}
}

func TestPieces(t *testing.T) {
	a, b := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	data := bytes.Repeat([]byte{7}, 20)
	p := IP{Source: a, Destination: b, Protocol: unix.IPPROTO_UDP}.Piece(data, 8, 16, 9).Packet()
	if want := "1100000900000009"; hex.EncodeToString(p[40:48]) != want {
		t.Errorf("fragment header %x, want %s", p[40:48], want)
	}
	p = IP{Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2")}.Piece(data, 16, 20, 9).Packet()
	if p[6] != 0 || p[7] != 2 || len(p) != 24 {
		t.Errorf("last piece %x", p)
	}
	if h := Extension(6, make([]byte, 1)); len(h) != 8 || h[1] != 0 {
		t.Errorf("extension header %x", h)
	}
}
