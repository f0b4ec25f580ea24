package adversary

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/test/adversary/frame"
)

var spoofed = []string{"spoofed_source"}

// sources are addresses that the attacker does not own, and with which its frames must reach no pod.
var sources = []struct {
	name    string
	address func(*attempt) netip.Addr
}{
	{"another pod", func(s *attempt) netip.Addr { return s.third.Addresses[s.family] }},
	{"another node's pod", func(s *attempt) netip.Addr { return s.pod(unselected, 2).Addresses[s.family] }},
	{"the victim", (*attempt).to},
	{"the node", func(s *attempt) netip.Addr { return s.nodes[0].Addresses[s.family].Addr() }},
	{"another node", func(s *attempt) netip.Addr { return s.nodes[1].Addresses[s.family].Addr() }},
	{"the pods' gateway", func(s *attempt) netip.Addr { return s.addr("169.254.1.1", "fe80::1") }},
	{"a Service", func(s *attempt) netip.Addr { return services[s.pod(isolated, 1).Name].cluster[s.family] }},
	{"an external host", func(s *attempt) netip.Addr { return s.addr("198.51.100.7", "2001:db8::7") }},
	{"the unspecified address", func(s *attempt) netip.Addr { return s.addr("0.0.0.0", "::") }},
	{"loopback", func(s *attempt) netip.Addr { return s.addr("127.0.0.1", "::1") }},
	{"a multicast group", func(s *attempt) netip.Addr { return s.addr("224.0.0.1", "ff02::1") }},
	{"the broadcast address", func(s *attempt) netip.Addr { return s.addr("255.255.255.255", "ff0e::1") }},
	{"a link-local address", func(s *attempt) netip.Addr { return s.addr("169.254.7.7", "fe80::7") }},
	{"an unassigned pod address", func(s *attempt) netip.Addr { return s.addr("10.77.1.13", "fd77:1:1::d") }},
}

func forgedSources() (rows []attack) {
	for _, each := range sources {
		rows = append(rows, attack{name: "source of " + each.name, kind: forged, reasons: spoofed, frames: func(s *attempt) [][]byte {
			source := each.address(s)
			udp := s.udpTo(netip.AddrPortFrom(source, s.port), netip.AddrPortFrom(s.to(), markerPort), s.token)
			syn := frame.TCP(netip.AddrPortFrom(source, s.port), netip.AddrPortFrom(s.to(), serverPort), frame.Segment{Flags: frame.SYN}, s.token)
			return [][]byte{udp, s.frame(frame.IP{Source: source, Destination: s.to(), Protocol: tcp, Payload: syn})}
		}})
	}
	return rows
}

// mapped returns an IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2), which no packet may carry (RFC 4942, 2.2).
func mapped(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }

// forgedAddresses are packets between addresses that are invalid on the wire.
var forgedAddresses = []attack{
	{name: "IPv4 addresses in IPv6", kind: forged, only: 4, reasons: []string{"malformed"}, frames: func(s *attempt) (frames [][]byte) {
		for _, pair := range [][2]netip.Addr{
			{mapped(s.from()), mapped(s.to())}, {mapped(s.from()), s.victim.Addresses[1]}, {s.attacker.Addresses[1], mapped(s.to())},
			{mapped(s.third.Addresses[0]), mapped(s.to())},
		} {
			frames = append(frames, s.udpTo(netip.AddrPortFrom(pair[0], s.port), netip.AddrPortFrom(pair[1], serverPort), s.token))
		}
		return frames
	}},
	{name: "multicast groups and other destinations without a host", kind: forged, frames: func(s *attempt) (frames [][]byte) {
		for _, to := range pick(s,
			[]string{"224.0.0.1", "224.0.0.251", "255.255.255.255", "10.77.1.15", "10.77.1.255", "127.0.0.1", "0.0.0.0", "240.0.0.1", "169.254.1.1", "169.254.9.9"},
			[]string{"ff02::1", "ff02::2", "ff02::fb", "ff01::1", "::", "::1", "fe80::1", "fe80::9"},
		) {
			frames = append(frames, s.udpTo(netip.AddrPortFrom(s.from(), s.port), netip.AddrPortFrom(netip.MustParseAddr(to), markerPort), s.token))
		}
		return frames
	}},
	{name: "DHCP", kind: forged, only: 4, reasons: spoofed, frames: one(func(s *attempt) []byte {
		return s.udpTo(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), s.token)
	})},
	{name: "multicast listener reports", kind: forged, only: 6, frames: func(s *attempt) (frames [][]byte) {
		for _, kind := range []uint8{130, 131, 132, 143} {
			from, to := linkLocal(s.attacker.mac), netip.MustParseAddr("ff02::16")
			ip := frame.IP{Source: from, Destination: to, Protocol: unix.IPPROTO_ICMPV6, Hops: 1, Payload: frame.ICMP(from, to, kind, 0, 0, append(make([]byte, 16), s.token...))}
			frames = append(frames, s.frame(ip))
		}
		return frames
	}},
}

// broadcast is the Ethernet broadcast address.
var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// forgedMACs are frames from and to other MAC addresses, with a packet that policies deny.
func forgedMACs() (rows []attack) {
	own := func(s *attempt) net.HardwareAddr { return s.attacker.mac }
	host := func(s *attempt) net.HardwareAddr { return s.attacker.host }
	row := func(name string, reasons []string, from, to func(*attempt) net.HardwareAddr) {
		rows = append(rows, attack{name: name, kind: denied, reasons: reasons, frames: one(func(s *attempt) []byte {
			f := s.tcp(s.port, serverPort, frame.SYN)
			copy(f, to(s))
			copy(f[6:], from(s))
			return f
		})})
	}
	for _, mac := range []struct {
		name string
		mac  func(*attempt) net.HardwareAddr
	}{
		{"another pod", func(s *attempt) net.HardwareAddr { return s.third.mac }},
		{"the victim", func(s *attempt) net.HardwareAddr { return s.victim.mac }},
		{"the victim's host", func(s *attempt) net.HardwareAddr { return s.victim.host }},
		{"broadcast", func(*attempt) net.HardwareAddr { return broadcast }},
		{"a multicast group", func(*attempt) net.HardwareAddr { return net.HardwareAddr{0x01, 0, 0x5e, 0, 0, 1} }},
		{"the zero address", func(*attempt) net.HardwareAddr { return make(net.HardwareAddr, 6) }},
	} {
		row("MAC address of "+mac.name+" as source", append(slices.Clone(spoofed), byPolicy...), mac.mac, host) // macvlan pods are known by it
		row("MAC address of "+mac.name+" as destination", nil, own, mac.mac)                                    // the kernel stack may drop it before policies are evaluated
	}
	return rows
}

// neighbours are messages that map an IP address to the attacker's MAC address.
var neighbours = []attack{
	{name: "ARP for others", kind: forged, only: 4, check: checkNeighbours, frames: func(s *attempt) (frames [][]byte) {
		gateway := netip.MustParseAddr("169.254.1.1")
		for _, claim := range []netip.Addr{s.to(), s.third.Addresses[0], gateway, s.nodes[0].Addresses[0].Addr(), s.nodes[1].Addresses[0].Addr(), s.lab.lab.ClientAddresses()[0].Addr()} {
			for _, mac := range []net.HardwareAddr{s.attacker.host, broadcast, s.victim.mac} {
				for operation := uint16(1); operation <= 2; operation++ {
					for _, target := range []netip.Addr{claim, gateway, s.to()} {
						p := append(frame.ARP(operation, s.attacker.mac, claim, mac, target), s.token...)
						frames = append(frames, frame.Ethernet(mac, s.attacker.mac, unix.ETH_P_ARP, p))
					}
				}
			}
		}
		return frames
	}},
	{name: "neighbour advertisements for others", kind: forged, only: 6, check: checkNeighbours, frames: func(s *attempt) (frames [][]byte) {
		const router, solicited, override = 1 << 31, 1 << 30, 1 << 29
		for _, claim := range []netip.Addr{s.to(), s.third.Addresses[1], netip.MustParseAddr("fe80::1"), linkLocal(s.third.mac), s.nodes[0].Addresses[1].Addr(), s.nodes[1].Addresses[1].Addr()} {
			option := append([]byte{2, 1}, s.attacker.mac...) // target link-layer address (RFC 4861, 4.6.1)
			data := append(append(claim.AsSlice(), option...), s.token...)
			for _, source := range []netip.Addr{linkLocal(s.attacker.mac), s.from(), claim} {
				for _, to := range []netip.Addr{netip.MustParseAddr("ff02::1"), s.to(), linkLocal(s.attacker.host), linkLocal(s.third.mac)} {
					if source == s.from() && to == s.to() {
						continue // a unicast message that hosts ignore without a hop limit of 255: policies evaluate it
					}
					for _, kind := range []uint8{135, 136} {
						ip := frame.IP{Source: source, Destination: to, Protocol: unix.IPPROTO_ICMPV6, Hops: 255}
						ip.Payload = frame.ICMP(source, to, kind, 0, router|solicited|override, data)
						frames = append(frames, s.frame(ip))
					}
				}
			}
		}
		return frames
	}},
	{name: "router advertisements and redirects", kind: forged, only: 6, check: checkRouters, frames: func(s *attempt) (frames [][]byte) {
		prefix := append([]byte{3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}, netip.MustParseAddr("2001:db8:bad::").AsSlice()...)
		advertisement := append(append(make([]byte, 8), prefix...), s.token...)
		redirect := append(append(linkLocal(s.attacker.mac).AsSlice(), s.to().AsSlice()...), s.token...)
		for _, source := range []netip.Addr{linkLocal(s.attacker.mac), linkLocal(s.third.mac), s.from()} {
			for _, to := range []netip.Addr{netip.MustParseAddr("ff02::1"), netip.MustParseAddr("ff02::2"), s.to(), s.nodes[0].Addresses[1].Addr(), linkLocal(s.attacker.host)} {
				if source == s.from() && to == s.to() {
					continue // a unicast message: policies evaluate it
				}
				for kind, data := range map[uint8][]byte{133: s.token, 134: advertisement, 137: redirect} {
					if kind == 133 && s.attacker.kind == onLink && to.IsMulticast() && source != linkLocal(s.third.mac) {
						continue // macvlan pods may look for routers
					}
					ip := frame.IP{Source: source, Destination: to, Protocol: unix.IPPROTO_ICMPV6, Hops: 255}
					ip.Payload = frame.ICMP(source, to, kind, 0, 64<<24|0xffff, data)
					frames = append(frames, s.frame(ip))
				}
			}
		}
		return frames
	}},
}

// linkLocal is the EUI-64 link-local address (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// checkNeighbours returns an error if a node maps another host's address to the attacker's MAC address.
func checkNeighbours(s *attempt) error {
	for _, n := range s.nodes {
		out, err := n.Output(s.t.Context(), "ip", "neighbour", "show")
		if err != nil {
			return err
		}
		out6, err := n.Output(s.t.Context(), "ip", "-6", "neighbour", "show")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(out) + string(out6)) {
			address, _, _ := strings.Cut(line, " ")
			at, err := netip.ParseAddr(address)
			if err != nil || !strings.Contains(line, s.attacker.mac.String()) || at == linkLocal(s.attacker.mac) {
				continue
			}
			if own := s.attacker.Addresses; at != own[0] && at != own[1] && !onDevice(line, s.attacker.host, n) {
				return fmt.Errorf("node %s accepted %s", n.Name, strings.TrimSpace(line))
			}
		}
	}
	return nil
}

// onDevice reports whether a neighbour entry is on the attacker's own device: there it redirects only packets that
// leave by this device anyway.
func onDevice(line string, host net.HardwareAddr, n *node) bool {
	_, after, _ := strings.Cut(line, " dev ")
	device, _, _ := strings.Cut(after, " ")
	found := false
	err := n.Do(func() error {
		link, err := net.InterfaceByName(device)
		found = err == nil && link.HardwareAddr.String() == host.String()
		return err
	})
	return err == nil && found
}

// checkRouters returns an error if a node accepted a router, an address or a route from an advertisement.
func checkRouters(s *attempt) error {
	for _, n := range s.nodes {
		routes, err := n.Output(s.t.Context(), "ip", "-6", "route", "show", "table", "all")
		addresses, err2 := n.Output(s.t.Context(), "ip", "-6", "address", "show")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		for line := range strings.Lines(string(routes) + string(addresses)) {
			if strings.Contains(line, "proto ra") || strings.Contains(line, "2001:db8:bad") || strings.Contains(line, "redirect") {
				return fmt.Errorf("node %s accepted %s", n.Name, strings.TrimSpace(line))
			}
		}
	}
	return nil
}
