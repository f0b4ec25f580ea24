package packetgen

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"testing"
)

func frames4() Frames {
	return Frames{
		SourceMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DestinationMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		Source: netip.MustParseAddrPort("198.18.0.0:1024"), Destination: netip.MustParseAddrPort("192.168.77.1:30000"),
		Flows: 1, Ports: 1,
	}
}

func TestTemplateIPv4(t *testing.T) {
	frame, network, transport := frames4().template()
	want := "020000000002" + "020000000001" + "0800" + // Ethernet
		"4500002e" + "00004000" + "40110000" + "00000000" + "c0a84d01" + // IPv4: 46 bytes, TTL 64, UDP; no source, no checksum
		"00007530" + "001a0000" // UDP: to port 30000, 26 bytes
	if got := hex.EncodeToString(frame[:ethernetHeader+ipv4Header+udpHeader]); got != want {
		t.Errorf("template\n%s, want\n%s", got, want)
	}
	if rest := frame[ethernetHeader+ipv4Header+udpHeader:]; !bytes.Equal(rest, make([]byte, len(rest))) {
		t.Errorf("payload %x, want zeroes", rest)
	}
	// What the program adds, by hand: the receiver's sums over whole headers must come out as all ones.
	source := []byte{198, 18, 0, 9}
	ip := bytes.Clone(frame[14:60])
	copy(ip[12:], source)
	binary.LittleEndian.PutUint16(ip[10:], folded(network+sum(source)))
	if got := folded(sum(ip[:20])); got != 0 {
		t.Errorf("IPv4 header checksum is off by %#x", got)
	}
	udp := ip[20:]
	binary.BigEndian.PutUint16(udp, 1030)
	binary.LittleEndian.PutUint16(udp[6:], folded(transport+sum(source)+sum(udp[:2])))
	pseudo := append(append([]byte{}, ip[12:20]...), 0, 17, 0, 26)
	if got := folded(sum(udp) + sum(pseudo)); got != 0 {
		t.Errorf("UDP checksum is off by %#x", got)
	}
}

func TestTemplateIPv6(t *testing.T) {
	f := frames4()
	f.Source, f.Destination = netip.MustParseAddrPort("[fd00::1:2]:1024"), netip.MustParseAddrPort("[fd77::1]:30000")
	if f.Length() != 62 {
		t.Fatalf("length %d", f.Length())
	}
	frame, _, transport := f.template()
	want := "020000000002" + "020000000001" + "86dd" +
		"60000000" + "00081140" + "fd000000000000000000000000000000" + "fd770000000000000000000000000001" +
		"00007530" + "00080000"
	if got := hex.EncodeToString(frame[:62]); got != want {
		t.Errorf("template\n%s, want\n%s", got, want)
	}
	ip := bytes.Clone(frame[14:62])
	tail := []byte{0, 1, 0, 2}
	copy(ip[20:], tail)
	udp := ip[40:]
	binary.BigEndian.PutUint16(udp, 1024)
	binary.LittleEndian.PutUint16(udp[6:], folded(transport+sum(tail)+sum(udp[:2])))
	pseudo := append(append([]byte{}, ip[8:40]...), 0, 0, 0, 8, 0, 0, 0, 17)
	if got := folded(sum(udp) + sum(pseudo)); got != 0 {
		t.Errorf("UDP checksum is off by %#x", got)
	}
}

// folded is the one's complement of a sum, as RFC 1071 has it.
func folded(total uint32) uint16 {
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return ^uint16(total)
}
