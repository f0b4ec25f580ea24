package capture

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

// TestLook sorts frames: each kind of plaintext is found, and nothing else.
func TestLook(t *testing.T) {
	node, other, outside := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}, net.HardwareAddr{2, 0, 0, 0, 0, 3}
	a, b, pod := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2"), netip.MustParseAddrPort("10.0.0.9:3")
	a6, pod6 := netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[fd00::9]:3")
	udp := func(from, to netip.AddrPort, data string) []byte {
		return frame.IP{Source: from.Addr(), Destination: to.Addr(), Protocol: unix.IPPROTO_UDP, Payload: frame.UDP(from, to, []byte(data))}.Packet()
	}
	between := func(from, to net.HardwareAddr, packet []byte) []byte {
		kind := uint16(unix.ETH_P_IP)
		if packet[0]>>4 == 6 {
			kind = unix.ETH_P_IPV6
		}
		return frame.Ethernet(to, from, kind, packet)
	}
	esp := frame.IP{Source: a.Addr(), Destination: b.Addr(), Protocol: unix.IPPROTO_ESP, Payload: make([]byte, 40)}.Packet()
	neighbours := func(hops byte, kind byte, data string) []byte {
		return frame.IP{Source: pod6.Addr(), Destination: a6.Addr(), Protocol: unix.IPPROTO_ICMPV6, Hops: hops, Payload: append([]byte{kind, 0, 0, 0}, data...)}.Packet()
	}
	const target = "0123456789abcdef01234567"
	for _, c := range []struct {
		name, why string
		frame     []byte
		encrypted int
	}{
		{"nodes", "", between(node, other, udp(a, b, "hello")), 0},
		{"from a pod", "an address of a pod", between(node, other, udp(pod, b, "hello")), 0},
		{"to a pod", "an address of a pod", between(node, other, udp(a6, pod6, "hello")), 0},
		{"to a pod, tagged", "an address of a pod", frame.Tagged(between(node, other, udp(a6, pod6, "hello")), unix.ETH_P_8021Q, 5), 0},
		{"a pod and a machine outside", "", between(outside, node, udp(a, pod, Marker)), 0},
		{"a marker between nodes", "the marker", between(node, other, udp(a, b, "some "+Marker)), 0},
		{"VXLAN", "VXLAN", between(node, other, udp(a, netip.AddrPortFrom(b.Addr(), vxlanPort), "inner")), 0},
		{"WireGuard", "", between(node, other, udp(a, netip.AddrPortFrom(b.Addr(), wireGuardPort), "inner")), 1},
		{"ESP", "", between(node, other, esp), 1},
		{"a pod's advertisement", "", between(node, other, neighbours(255, 136, target)), 0},
		{"an advertisement with the marker", "the marker", between(node, other, neighbours(255, 136, Marker)), 0},
		{"a forwarded advertisement", "an address of a pod", between(node, other, neighbours(254, 136, target)), 0},
		{"a pod's echo request", "an address of a pod", between(node, other, neighbours(255, 128, target)), 0},
		{"a long advertisement", "an address of a pod", between(node, other, neighbours(255, 136, target+target)), 0},
		{"short", "", []byte{1, 2, 3}, 0},
		{"cut", "", between(node, other, udp(a, b, "hello"))[:20], 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := NewWire([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}, outside)
			w.look(c.frame)
			why := ""
			for _, p := range w.Plain() {
				why += p.Why
			}
			if why != c.why || w.Encrypted() != c.encrypted {
				t.Errorf("plaintext %q and %d encrypted packets, want %q and %d", why, w.Encrypted(), c.why, c.encrypted)
			}
		})
	}
}
