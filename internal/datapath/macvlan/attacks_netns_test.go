package macvlan_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// broadcast is the MAC of all stations.
var broadcast = fwd.MAC{255, 255, 255, 255, 255, 255}

// arpFrame is ARP that says that sender is at senderMAC. The fill follows.
func arpFrame(from, to fwd.MAC, operation byte, senderMAC fwd.MAC, sender, target netip.Addr, fill ...byte) fixtures.Packet {
	body := append([]byte{0, 1, 8, 0, 6, 4, 0, operation}, senderMAC[:]...)
	body = append(append(body, sender.AsSlice()...), make([]byte, 6)...)
	return fixtures.Eth(from, to).Ether(fixtures.EtherARP).Payload(string(append(append(body, target.AsSlice()...), fill...)))
}

// neighbourFrame is neighbour discovery about target.
func neighbourFrame(p fixtures.Packet, kind uint8, target netip.Addr) fixtures.Packet {
	header := append(make([]byte, 8), target.AsSlice()...)
	header[0] = kind
	return p.Ttl(255).Raw(fixtures.ProtoICMPv6, header)
}

// What a pod with a macvlan device sends under another's name, and what the wire sends under a local pod's, is dropped: with a packet
// socket, also past the queues of the pod's device.
func TestMacvlanAttacks(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true}})
	attacker, victim := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
	external4, external6 := n.ExternalOnSwitch(4), n.ExternalOnSwitch(6)
	unknown := fwd.MAC{2, 9, 9, 9, 9, 9}
	own := fixtures.Eth(attacker.Mac, fixtures.Router)
	version5 := own.Ipv4(attacker.V4, external4).Udp(1, 7).Ether(fixtures.EtherIPv4)
	version5.Version = 5
	own6 := own.Ipv6(attacker.V6, external6)
	allNodes := fixtures.Addr("ff02::1")
	group := fwd.MAC{0x33, 0x33, 0, 0, 0, 1}
	linkLocal := fixtures.LinkLocal(attacker.Mac)
	report := func(kind byte, to netip.Addr) fixtures.Packet {
		return fixtures.Eth(attacker.Mac, group).Ipv6(linkLocal, to).Ttl(1).Raw(fixtures.ProtoICMPv6, append([]byte{kind}, make([]byte, 23)...)).RouterAlert()
	}
	received := victim.ListenUDP(t, victim.V4)
	fill := func(t *testing.T) {
		t.Helper()
		fillFlowCache(t, victim.Netns, fixtures.Eth(victim.Mac, fixtures.Router).Ipv4(victim.V4, external4).Udp(1, 7),
			fixtures.Eth(victim.Mac, fixtures.Router).Ipv6(victim.V6, external6).Udp(1, 7))
		fillFlowCache(t, attacker.Netns, own.Ipv4(attacker.V4, external4).Udp(1, 7), own6.Udp(1, 7))
		fillFlowCache(t, *n.External, fixtures.Eth(fixtures.Router, victim.Mac).Ipv4(external4, victim.V4).Udp(1, 9),
			fixtures.Eth(fixtures.Router, victim.Mac).Ipv6(external6, victim.V6).Udp(1, 9))
	}

	for _, test := range []struct {
		name  string
		from  netlab.Netns
		frame fixtures.Packet
		want  string
	}{
		{"the MAC and address of a neighbour", attacker.Netns, fixtures.Eth(victim.Mac, fixtures.Router).Ipv4(victim.V4, external4).Udp(1, 7), "from_macvlan spoofed_source"},
		{"the MAC and address of the node", attacker.Netns, fixtures.Eth(n.A.Mac, fixtures.Router).Ipv4(n.A.V4, external4).Udp(1, 7), "from_macvlan spoofed_source"},
		{"the node's MAC to a neighbour", attacker.Netns, fixtures.Eth(n.A.Mac, victim.Mac).Ipv4(n.A.V4, victim.V4).Udp(1, 7), "from_macvlan spoofed_source"},
		{"an unknown MAC", attacker.Netns, fixtures.Eth(unknown, fixtures.Router).Ipv4(attacker.V4, external4).Udp(1, 7), "from_macvlan spoofed_source"},
		{"the address of a neighbour", attacker.Netns, own.Ipv4(victim.V4, external4).Udp(1, 7), "from_macvlan spoofed_source"},
		{"the address of a veth pod", attacker.Netns, own.Ipv4(n.A1.V4, victim.V4).Udp(1, 7), "from_macvlan spoofed_source"},
		{"IPv6 of a neighbour", attacker.Netns, own.Ipv6(victim.V6, external6).Udp(1, 7), "from_macvlan spoofed_source"},
		{"UDP from a link-local address", attacker.Netns, own.Ipv6(fixtures.Addr("fe80::1"), external6).Udp(1, 7), "from_macvlan spoofed_source"},
		{"unicast in a broadcast", attacker.Netns, fixtures.Eth(attacker.Mac, broadcast).Ipv4(attacker.V4, victim.V4).Udp(1, 7), "from_macvlan invalid_destination"},
		{"unicast in a broadcast, IPv6", attacker.Netns, fixtures.Eth(attacker.Mac, group).Ipv6(attacker.V6, victim.V6).Udp(1, 7), "from_macvlan invalid_destination"},
		{"multicast of a router", attacker.Netns, fixtures.Eth(attacker.Mac, fwd.MAC{1, 0, 0x5e, 0, 0, 18}).Ipv4(external4, fixtures.Addr("224.0.0.18")).Udp(1, 7), "from_macvlan spoofed_source"},
		{"a broadcast of a router", attacker.Netns, fixtures.Eth(attacker.Mac, broadcast).Ipv4(external4, fixtures.Addr("255.255.255.255")).Udp(67, 68), "from_macvlan spoofed_source"},
		{"data as report of a listener", attacker.Netns, fixtures.Eth(attacker.Mac, group).Ipv6(linkLocal, allNodes).Ttl(1).Udp(1, 7).RouterAlert(), "from_macvlan spoofed_source"},
		{"a report of a listener to a host", attacker.Netns, report(143, external6), "from_macvlan spoofed_source"},
		{"a router's query for listeners", attacker.Netns, report(130, allNodes), "from_macvlan spoofed_source"},
		{"IPv4 of version 5", attacker.Netns, version5, "from_macvlan malformed"},
		{"a VLAN tag", attacker.Netns, own.Ether(fixtures.EtherVLAN).Payload("\x00\x07\x08\x00E"), "from_macvlan not_ip"},
		{"two VLAN tags", attacker.Netns, own.Ether(0x88a8).Payload("\x00\x07\x81\x00\x00\x08\x08\x00E"), "from_macvlan not_ip"},
		{"no IP", attacker.Netns, own.Ether(fixtures.EtherMPLS).Payload("label"), "from_macvlan not_ip"},
		{"ARP: the router is here", attacker.Netns, arpFrame(attacker.Mac, broadcast, 2, attacker.Mac, external4, victim.V4), "from_macvlan spoofed_source"},
		{"ARP: the router is here, to the neighbour", attacker.Netns, arpFrame(attacker.Mac, victim.Mac, 2, attacker.Mac, external4, victim.V4), "from_macvlan spoofed_source"},
		{"ARP: the neighbour is at the node", attacker.Netns, arpFrame(n.A.Mac, broadcast, 2, n.A.Mac, victim.V4, external4), "from_macvlan spoofed_source"},
		{"ARP with data", attacker.Netns, arpFrame(attacker.Mac, victim.Mac, 1, attacker.Mac, attacker.V4, victim.V4, make([]byte, 19)...), "from_macvlan malformed"},
		{"ARP of another network", attacker.Netns, fixtures.Eth(attacker.Mac, broadcast).Ether(fixtures.EtherARP).Payload("this is no ARP for IPv4 over Ethernet"), "from_macvlan malformed"},
		{"the router's neighbour advertisement", attacker.Netns, neighbourFrame(fixtures.Eth(attacker.Mac, group).Ipv6(attacker.V6, allNodes), 136, external6), "from_macvlan spoofed_source"},
		{"a router advertisement", attacker.Netns, neighbourFrame(fixtures.Eth(attacker.Mac, group).Ipv6(attacker.V6, allNodes), 134, external6), "from_macvlan spoofed_source"},
		{"a router solicitation to a host", attacker.Netns, neighbourFrame(own6, 133, external6), "from_macvlan spoofed_source"},
		{"a solicitation that routers forward", attacker.Netns, neighbourFrame(own6, 135, external6).Ttl(64), "from_macvlan spoofed_source"},
		{"a solicitation with data", attacker.Netns, neighbourFrame(own6, 135, external6).Payload(string(make([]byte, 100))), "from_macvlan spoofed_source"},
		{"an advertisement with data", attacker.Netns, neighbourFrame(own6, 136, attacker.V6).Payload(string(make([]byte, 100))), "from_macvlan spoofed_source"},
		{"a redirect", attacker.Netns, neighbourFrame(own6, 137, external6), "from_macvlan spoofed_source"},
		{"an advertisement behind an extension header", attacker.Netns, neighbourFrame(own6.Extend(fixtures.ProtoDstOptions), 136, external6), "from_macvlan spoofed_source"},
		{"a solicitation from the router's address", attacker.Netns, neighbourFrame(own.Ipv6(external6, victim.V6), 135, victim.V6), "from_macvlan spoofed_source"},

		{"the wire to one pod's MAC and another's address", *n.External, fixtures.Eth(fixtures.Router, attacker.Mac).Ipv4(external4, victim.V4).Udp(1, 7), "to_macvlan invalid_destination"},
		{"the wire from a local pod", *n.External, fixtures.Eth(fixtures.Router, victim.Mac).Ipv4(attacker.V4, victim.V4).Udp(1, 7), "to_macvlan invalid_source"},
		{"the wire with a local pod's MAC", *n.External, fixtures.Eth(attacker.Mac, victim.Mac).Ipv4(n.A1.V4, victim.V4).Udp(1, 7), "to_macvlan invalid_source"},
		{"the wire's ARP for a local pod", *n.External, arpFrame(fixtures.Router, broadcast, 2, fixtures.Router, attacker.V4, victim.V4), "to_macvlan spoofed_source"},
		{"the wire's advertisement for a local pod", *n.External, neighbourFrame(fixtures.Eth(fixtures.Router, victim.Mac).Ipv6(external6, victim.V6), 136, attacker.V6), "to_macvlan spoofed_source"},
		{"the wire's VLAN to a pod", *n.External, fixtures.Eth(fixtures.Router, victim.Mac).Ether(fixtures.EtherVLAN).Payload("\x00\x07\x08\x00E" + string(make([]byte, 60))), "to_macvlan not_ip"},
		{"no IP to a pod", *n.External, fixtures.Eth(fixtures.Router, victim.Mac).Ether(fixtures.EtherMPLS).Payload("label"), "to_macvlan not_ip"},
	} {
		fill(t)
		frame := test.frame.Bytes()
		own := uint16(frame[12])<<8 | uint16(frame[13])
		// The parent does not read the frame before the program: it has what the socket says.
		for _, protocol := range []uint16{own, unix.ETH_P_ARP, unix.ETH_P_IP, unix.ETH_P_IPV6, 1} {
			for _, bypass := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, protocol=%#x, bypass=%v", test.name, protocol, bypass), func(t *testing.T) {
					want := maps.Clone(n.A.Dropped(t))
					want[test.want]++
					sendPast(t, test.from, protocol, frame, bypass)
					n.AwaitDropped(t, n.A, want)
				})
			}
		}
	}
	netlab.ExpectNothing(t, received)
}

// ARP may fill a frame to the shortest length of Ethernet.
func TestMacvlanShortARP(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true, Macvlan: true}})
	pod, neighbour := n.A.AddMacvlan(t, "m1", netlab.MacvlanPods[0]), n.A.AddMacvlan(t, "m2", netlab.MacvlanPods[1])
	frames := capture(t, neighbour.Netns)
	sent := arpFrame(pod.Mac, neighbour.Mac, 1, pod.Mac, pod.V4, neighbour.V4, make([]byte, 18)...).Bytes()
	pod.Send(t, "eth0", sent)
	for begin := time.Now(); !slices.ContainsFunc(frames(), func(f []byte) bool { return len(f) == len(sent) && bytes.HasSuffix(f, sent[12:]) }); {
		if time.Since(begin) > netlab.Patience {
			t.Fatalf("a frame of %d bytes does not arrive; drops: %v", len(sent), n.A.Dropped(t))
		}
	}
}

// fillFlowCache sends packets on each CPU, so that the flow cache knows them when others send the same ones.
func fillFlowCache(t *testing.T, from netlab.Netns, packets ...fixtures.Packet) {
	t.Helper()
	for cpu := range runtime.NumCPU() {
		from.Do(t, func() (err error) {
			var before, one unix.CPUSet
			one.Set(cpu)
			if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, unix.SchedSetaffinity(0, &before)) }()
			for _, p := range packets {
				from.Send(t, "eth0", p.Bytes())
			}
			return nil
		})
	}
}

// sendPast sends a frame by eth0 and says that it is of a protocol, with bypass past the queue and the egress programs of the device.
func sendPast(t *testing.T, from netlab.Netns, protocol uint16, frame []byte, bypass bool) {
	t.Helper()
	if !bypass {
		from.SendAs(t, "eth0", protocol, frame)
		return
	}
	from.Do(t, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
			return err
		}
		dev, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		to := unix.SockaddrLinklayer{Ifindex: dev.Index, Protocol: protocol<<8 | protocol>>8}
		if err := unix.Sendto(fd, bytes.Clone(frame), 0, &to); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		return nil
	})
}
