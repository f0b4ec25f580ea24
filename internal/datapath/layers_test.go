package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// layers prints a packet, one line for each layer, as far as it can be read.
func layers(b []byte) string {
	var out strings.Builder
	if len(b) < ethLen {
		return fmt.Sprintf("%d bytes: % x\n", len(b), b)
	}
	etherType := binary.BigEndian.Uint16(b[12:])
	fmt.Fprintf(&out, "eth   % x > % x type %04x, %d bytes\n", b[6:12], b[0:6], etherType, len(b))
	rest := b[ethLen:]
	switch {
	case etherType == etherIPv4 && len(rest) >= ipv4Len:
		rest = ipv4Layer(&out, rest)
	case etherType == etherIPv6 && len(rest) >= ipv6Len:
		rest = ipv6Layer(&out, rest)
	}
	const shown = 64
	if len(rest) > shown {
		fmt.Fprintf(&out, "data  % x … (%d bytes, sum %04x)\n", rest[:shown], len(rest), checksum(rest))
	} else {
		fmt.Fprintf(&out, "data  % x\n", rest)
	}
	return out.String()
}

func ipv4Layer(out *strings.Builder, b []byte) []byte {
	end := min(max(int(b[0]&15)*4, ipv4Len), len(b))
	src, _ := netip.AddrFromSlice(b[12:16])
	dst, _ := netip.AddrFromSlice(b[16:20])
	sum := "valid"
	if checksum(b[:end]) != 0xffff {
		sum = "WRONG"
	}
	fmt.Fprintf(out, "ipv4  %s > %s version %d ihl %d tos %d length %d id %x fragment %04x ttl %d proto %d checksum %x %s options % x\n",
		src, dst, b[0]>>4, b[0]&15, b[1], binary.BigEndian.Uint16(b[2:]), b[4:6], b[6:8], b[8], b[9], b[10:12], sum, b[ipv4Len:end])
	return b[end:]
}

func ipv6Layer(out *strings.Builder, b []byte) []byte {
	src, _ := netip.AddrFromSlice(b[8:24])
	dst, _ := netip.AddrFromSlice(b[24:40])
	fmt.Fprintf(out, "ipv6  %s > %s version %d class and flow % x length %d next %d hops %d\n",
		src, dst, b[0]>>4, b[0:4], binary.BigEndian.Uint16(b[4:]), b[6], b[7])
	return b[ipv6Len:]
}

// samePacket fails the test with both packets, layer by layer, when they differ.
func samePacket(t *testing.T, want, got []byte) {
	t.Helper()
	if string(want) == string(got) {
		return
	}
	w, g := layers(want), layers(got)
	if w == g { // they differ in what layers does not show
		w, g = fmt.Sprintf("%s% x\n", w, want), fmt.Sprintf("%s% x\n", g, got)
	}
	t.Errorf("the packet that comes out is not the expected one\nexpected:\n%sgot:\n%sdifference (-expected +got):\n%s", w, g, cmp.Diff(w, g))
}
