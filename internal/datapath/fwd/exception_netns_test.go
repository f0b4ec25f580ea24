package fwd_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
)

// A path with a smaller MTU than the pods' is discovered: the node sends an error, the sender's socket learns, and
// TCP gets through.
func TestPathMTU(t *testing.T) {
	const mtu = 1400
	for _, cfg := range []config.Datapath{fixtures.EbpfRouting, {Masquerade: true}} {
		for _, family := range fixtures.Families {
			t.Run(fmt.Sprintf("%s/IPv%d", fixtures.CfgName(cfg), family), func(t *testing.T) {
				t.Parallel()
				n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg, RemoteMTU: mtu})
				dst := n.B1.Addr(family)
				n.B1.ServeTCP(t, dst)
				n.B1.ServeUDP(t, dst)
				level, discover, do, pathMTU, headers := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU, fixtures.Ipv4Len+8
				if family == 6 {
					level, discover, do, pathMTU, headers = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU, fixtures.Ipv6Len+8
				}

				tcp := n.A1.Dial(t, "tcp", dst)
				if err := netlab.EchoTCP(tcp, 1<<20); err != nil {
					t.Errorf("TCP: %v", err)
				}
				if got := netlab.Sockopt(t, tcp, level, pathMTU); got != mtu {
					t.Errorf("TCP: path MTU %d, expected %d", got, mtu)
				}

				// From the other pod, which knows nothing yet.
				udp := n.A2.Dial(t, "udp", dst)
				netlab.SetSockopt(t, udp, level, discover, do)
				if err := netlab.EchoUDP(udp, mtu-headers); err != nil {
					t.Errorf("UDP of the MTU: %v", err)
				}
				if got := netlab.Sockopt(t, udp, level, pathMTU); got != 1500 {
					t.Errorf("UDP: path MTU %d before anything was too big", got)
				}
				if _, err := udp.Write(make([]byte, mtu-headers+1)); err != nil {
					t.Errorf("UDP one byte over the MTU, first time: %v", err)
				}
				awaitError(t, udp, unix.EMSGSIZE)
				if got := netlab.Sockopt(t, udp, level, pathMTU); got != mtu {
					t.Errorf("UDP: path MTU %d, expected %d", got, mtu)
				}
				if _, err := udp.Write(make([]byte, mtu-headers+1)); !errors.Is(err, unix.EMSGSIZE) {
					t.Errorf("UDP one byte over the MTU, second time: %v", err)
				}
				if err := netlab.EchoUDP(udp, mtu-headers); err != nil {
					t.Errorf("UDP of the MTU afterwards: %v", err)
				}
				n.DropsNothing(t)
			})
		}
	}
}

// awaitError waits for the network's ICMP error for a datagram of c.
func awaitError(t *testing.T, c net.Conn, want syscall.Errno) {
	t.Helper()
	for deadline := time.Now().Add(netlab.Patience); ; time.Sleep(time.Millisecond) {
		got := syscall.Errno(netlab.Sockopt(t, c, unix.SOL_SOCKET, unix.SO_ERROR))
		if got == want {
			return
		}
		if got != 0 || time.Now().After(deadline) {
			t.Fatalf("the network replies with %d (%v), expected %v", int(got), got, want)
		}
	}
}

// A sender that allows fragments gets them: the stack cuts what is too big.
func TestTooBigIsFragmented(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting, RemoteMTU: 1400})
	server := n.B1.ListenUDP(t, n.B1.V4)
	data := string(netlab.RandomBytes(1450))
	p := fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ipv4(n.A1.V4, n.B1.V4).Udp(1, netlab.EchoPort).Payload(data)
	p.FlagsOff = 0 // may be fragmented
	n.A1.Send(t, "eth0", p.Bytes())
	if err := netlab.Expect(server, []byte(data)); err != nil {
		t.Error(err)
	}
	n.DropsNothing(t)
}

// The node replies to a packet that has no hop left, with its own address and the sender's packet.
func TestTimeExceeded(t *testing.T) {
	for _, cfg := range []config.Datapath{fixtures.EbpfRouting, {Masquerade: true}} {
		for _, family := range fixtures.Families {
			t.Run(fmt.Sprintf("%s/IPv%d", fixtures.CfgName(cfg), family), func(t *testing.T) {
				t.Parallel()
				n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
				for i, dst := range []netip.Addr{n.B1.Addr(family), n.A2.Addr(family)} {
					listener := n.A1.ListenICMP(t, n.A1.Addr(family))
					p := fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ip(n.A1.Addr(family), dst).Ttl(1).Udp(uint16(1000+i), netlab.EchoPort)
					n.A1.Send(t, "eth0", p.Bytes())
					kind := byte(11)
					if family == 6 {
						kind = 3
					}
					from, err := netlab.AwaitICMP(listener, func(k, code byte, body []byte) bool {
						return k == kind && code == 0 && bytes.Contains(body, p.Transport[:4])
					})
					if err != nil {
						t.Errorf("to %s: %v", dst, err)
					} else if from != n.A.Addr(family) {
						t.Errorf("to %s: the reply comes from %s, not from the node", dst, from)
					}
				}
				n.DropsNothing(t)
			})
		}
	}
}

// A hop more is enough, and takes the packet there with one hop less.
func TestLastHopArrives(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting})
	for _, family := range fixtures.Families {
		server := n.B1.ListenUDP(t, n.B1.Addr(family))
		// Node A takes one, node B takes one, the pod gets the last.
		n.A1.Send(t, "eth0", fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ip(n.A1.Addr(family), n.B1.Addr(family)).Ttl(3).Udp(1, netlab.EchoPort).Payload("hi").Bytes())
		if err := netlab.Expect(server, []byte("hi")); err != nil {
			t.Errorf("IPv%d: %v", family, err)
		}
	}
	n.DropsNothing(t)
}

// Packets with options go through the stacks of both nodes, and arrive.
func TestOptionsArrive(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting})
	for name, p := range map[string]fixtures.Packet{
		"IPv4 options":             fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ipv4(n.A1.V4, n.B1.V4).IpOptions(1, 1, 1, 0),
		"IPv6 hop-by-hop":          fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ipv6(n.A1.V6, n.B1.V6).Extend(fixtures.ProtoHopByHop),
		"IPv6 destination options": fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ipv6(n.A1.V6, n.B1.V6).Extend(fixtures.ProtoDstOptions),
	} {
		server := n.B1.ListenUDP(t, p.Dst)
		before := n.Forwarded(t)
		n.A1.Send(t, "eth0", p.Udp(1, netlab.EchoPort).Payload(name).Bytes())
		if err := netlab.Expect(server, []byte(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		byStack := uint64(2)
		if name == "IPv6 destination options" {
			byStack = 0
		}
		if by := n.Forwarded(t) - before; by != byStack {
			t.Errorf("%s: the stacks have forwarded %d packets, expected %d", name, by, byStack)
		}
		server.Close()
	}
	n.DropsNothing(t)
}

// What a pod must not send does not arrive anywhere, and is counted. The genuine packet behind it does.
func TestSpoofedNeverArrives(t *testing.T) {
	for _, cfg := range fixtures.EveryConfig() {
		t.Run(fixtures.CfgName(cfg), func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg})
			spoofed := uint64(0)
			for _, family := range fixtures.Families {
				for _, dst := range []*netlab.Pod{n.B1, n.A2} {
					server := dst.ListenUDP(t, dst.Addr(family))
					own := fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ip(n.A1.Addr(family), dst.Addr(family)).Udp(1, netlab.EchoPort)
					var frames [][]byte
					for _, src := range []fixtures.Member{fixtures.PodA2, fixtures.PodB, fixtures.NoPod, fixtures.NodeA, fixtures.External} {
						if src.Addr(family) != dst.Addr(family) {
							frames = append(frames, fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ip(src.Addr(family), dst.Addr(family)).Udp(1, netlab.EchoPort).Payload("spoofed").Bytes())
						}
					}
					n.A1.Send(t, "eth0", append(frames, own.Payload("genuine").Bytes())...)
					if err := netlab.Expect(server, []byte("genuine")); err != nil {
						t.Errorf("IPv%d: %v", family, err)
					}
					spoofed += uint64(len(frames))
					n.AwaitDropped(t, n.A, map[string]uint64{"from_pod spoofed_source": spoofed})
					netlab.ExpectNothing(t, server)
					server.Close()
				}
			}
		})
	}
}

// A pod's socket says another protocol of a frame than the frame itself. Devices that do not look (netkit) leave it to
// from_pod, which must not believe the socket: what it lets pass as ARP, the node's kernel stack would take for IP.
func TestFrameProtocol(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting})
	spoofed := uint64(0)
	for _, family := range fixtures.Families {
		for _, dst := range []*netlab.Pod{n.B1, n.A2} {
			server := dst.ListenUDP(t, dst.Addr(family))
			frame := func(src netip.Addr, text string) []byte {
				return fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ip(src, dst.Addr(family)).Udp(1, netlab.EchoPort).Payload(text).Bytes()
			}
			for _, protocol := range []uint16{unix.ETH_P_ARP, unix.ETH_P_IP, unix.ETH_P_IPV6, unix.ETH_P_8021Q, unix.ETH_P_802_2, 1} {
				n.A1.SendAs(t, "eth0", protocol, frame(fixtures.External.Addr(family), "spoofed"))
				spoofed++
				n.AwaitDropped(t, n.A, map[string]uint64{"from_pod spoofed_source": spoofed})
				n.A1.SendAs(t, "eth0", protocol, frame(n.A1.Addr(family), "genuine"))
				if err := netlab.Expect(server, []byte("genuine")); err != nil {
					t.Errorf("IPv%d to %s, protocol %#x: %v", family, dst.Addr(family), protocol, err)
				}
			}
			netlab.ExpectNothing(t, server)
			server.Close()
		}
	}
}

// Frames of every length up to a whole header: real devices carry them, BPF_PROG_TEST_RUN does not.
func TestTruncated(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting})
	var frames [][]byte
	for _, family := range fixtures.Families {
		header := fixtures.Ipv4Len
		if family == 6 {
			header = fixtures.Ipv6Len
		}
		whole := fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ip(n.A1.Addr(family), n.B1.Addr(family)).Udp(1, netlab.EchoPort).Bytes()
		for size := fixtures.EthLen; size < fixtures.EthLen+header; size++ {
			frames = append(frames, whole[:size])
		}
	}
	n.A1.Send(t, "eth0", frames...)
	n.AwaitDropped(t, n.A, map[string]uint64{"from_pod truncated": uint64(len(frames))})

	// The same from the wire and for a pod: the kernel stack handles it, and later packets are unaffected.
	for _, f := range frames {
		copy(f, append(n.A.Mac[:], fixtures.Router[:]...))
	}
	server := n.A1.ListenUDP(t, n.A1.V4)
	genuine := fixtures.Eth(fixtures.Router, n.A.Mac).Ipv4(n.B1.V4, n.A1.V4).Udp(1, netlab.EchoPort).Payload("genuine").Bytes()
	n.External.Send(t, "eth0", append(frames, genuine)...)
	if err := netlab.Expect(server, []byte("genuine")); err != nil {
		t.Error(err)
	}
	n.AwaitDropped(t, n.A, map[string]uint64{"from_pod truncated": uint64(len(frames))})
}

// A pod cannot put a tagged frame on the wire, and a frame of a VLAN on the wire does not get into a pod.
func TestVLAN(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting})
	for _, family := range fixtures.Families {
		out := fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ip(n.A1.Addr(family), n.B1.Addr(family)).Udp(1, netlab.EchoPort)
		here := fixtures.Eth(n.A1.Mac, n.A1.Gateway).Ip(n.A1.Addr(family), n.A2.Addr(family)).Udp(1, netlab.EchoPort)
		in := fixtures.Eth(n.B.Mac, n.A.Mac).Ip(n.B1.Addr(family), n.A1.Addr(family)).Udp(1, netlab.EchoPort)
		for _, c := range []struct {
			name   string
			from   netlab.Netns
			to     *netlab.Pod
			packet fixtures.Packet
		}{{"to the wire", n.A1.Netns, n.B1, out}, {"to a pod here", n.A1.Netns, n.A2, here}, {"from the wire", n.B.Netns, n.A1, in}} {
			server := c.to.ListenUDP(t, c.to.Addr(family))
			c.from.Send(t, "eth0", tagged(c.packet.Payload("tagged").Bytes(), 100), c.packet.Payload("plain").Bytes())
			if err := netlab.Expect(server, []byte("plain")); err != nil {
				t.Errorf("IPv%d %s: %v", family, c.name, err)
			}
			netlab.ExpectNothing(t, server)
			server.Close()
		}
	}
	n.AwaitDropped(t, n.A, map[string]uint64{"from_pod not_ip": 4})
}

// A tag that says priority alone makes of a frame no other than it is without: neither of one that a pod may get, nor of a forged one. More
// of them than anybody sends are not understood.
func TestPriorityTags(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: fixtures.EbpfRouting})
	for _, family := range fixtures.Families {
		server := n.A1.ListenUDP(t, n.A1.Addr(family))
		in := func(from *netlab.Pod, payload string) []byte {
			return fixtures.Eth(n.B.Mac, n.A.Mac).Ip(from.Addr(family), n.A1.Addr(family)).Udp(1, netlab.EchoPort).Payload(payload).Bytes()
		}
		forged := in(n.A2, "forged")
		n.B.Send(t, "eth0", tagged(forged, 0), tagged(forged, 0xe000), tagged(forged, 0, 0), tagged(in(n.B1, "much"), 0, 0, 0))
		for _, tags := range [][]uint16{{0}, {0xe000}, {0, 0}} {
			n.B.Send(t, "eth0", tagged(in(n.B1, "true"), tags...))
			if err := netlab.Expect(server, []byte("true")); err != nil {
				t.Errorf("IPv%d with tags %v: %v", family, tags, err)
			}
		}
		netlab.ExpectNothing(t, server)
		server.Close()
	}
	n.AwaitDropped(t, n.A, map[string]uint64{"from_wire invalid_source": 6, "from_wire malformed": 2})
}

// tagged puts IEEE 802.1Q tags into a frame.
func tagged(frame []byte, tags ...uint16) []byte {
	var all []byte
	for _, tag := range tags {
		all = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(all, fixtures.EtherVLAN), tag)
	}
	return slices.Concat(frame[:12], all, frame[12:])
}

// A stale host route to the wrong pod delivers nothing.
func TestWrongPod(t *testing.T) {
	t.Parallel()
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{Masquerade: true}})
	server := n.A2.ListenUDP(t, fixtures.Addr("0.0.0.0"))
	n.A.Send(t, n.A2.Pair.HostName,
		fixtures.Eth(n.A2.Gateway, n.A2.Mac).Ipv4(n.A.V4, n.A2.V4).Udp(1, netlab.EchoPort).Payload("right").Bytes())
	if err := netlab.Expect(server, []byte("right")); err != nil {
		t.Error(err)
	}
	n.A.Send(t, n.A2.Pair.HostName,
		fixtures.Eth(n.A2.Gateway, n.A2.Mac).Ipv4(n.A.V4, n.A1.V4).Udp(1, netlab.EchoPort).Payload("wrong").Bytes(),
		fixtures.Eth(n.A2.Gateway, n.A2.Mac).Ipv6(n.A.V6, n.A1.V6).Udp(1, netlab.EchoPort).Payload("wrong").Bytes())
	n.AwaitDropped(t, n.A, map[string]uint64{"to_pod invalid_destination": 2})
	netlab.ExpectNothing(t, server)
}
