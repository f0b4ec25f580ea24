package datapath

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
)

var ebpfRouting = Config{EBPFRouting: true, Masquerade: true}

// A way with a smaller MTU than the pods' is discovered: the node answers, the sender's socket learns, and
// TCP gets through.
func TestPathMTU(t *testing.T) {
	const mtu = 1400
	for _, cfg := range []Config{ebpfRouting, {Masquerade: true}} {
		for _, family := range families {
			t.Run(fmt.Sprintf("%s/IPv%d", cfgName(cfg), family), func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t, options{cfg: cfg, remoteMTU: mtu})
				dst := n.b1.addr(family)
				n.b1.serveTCP(t, dst)
				n.b1.serveUDP(t, dst)
				level, discover, do, pathMTU, headers := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU, ipv4Len+8
				if family == 6 {
					level, discover, do, pathMTU, headers = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU, ipv6Len+8
				}

				tcp := n.a1.dial(t, "tcp", dst)
				if err := echoTCP(tcp, 1<<20); err != nil {
					t.Errorf("TCP: %v", err)
				}
				if got := sockopt(t, tcp, level, pathMTU); got != mtu {
					t.Errorf("TCP: path MTU %d, expected %d", got, mtu)
				}

				// From the other pod, which knows nothing yet.
				udp := n.a2.dial(t, "udp", dst)
				setSockopt(t, udp, level, discover, do)
				if err := echoUDP(udp, mtu-headers); err != nil {
					t.Errorf("UDP of the MTU: %v", err)
				}
				if got := sockopt(t, udp, level, pathMTU); got != 1500 {
					t.Errorf("UDP: path MTU %d before anything was too big", got)
				}
				if _, err := udp.Write(make([]byte, mtu-headers+1)); err != nil {
					t.Errorf("UDP one byte over the MTU, first time: %v", err)
				}
				awaitError(t, udp, unix.EMSGSIZE)
				if got := sockopt(t, udp, level, pathMTU); got != mtu {
					t.Errorf("UDP: path MTU %d, expected %d", got, mtu)
				}
				if _, err := udp.Write(make([]byte, mtu-headers+1)); !errors.Is(err, unix.EMSGSIZE) {
					t.Errorf("UDP one byte over the MTU, second time: %v", err)
				}
				if err := echoUDP(udp, mtu-headers); err != nil {
					t.Errorf("UDP of the MTU afterwards: %v", err)
				}
				n.dropsNothing(t)
			})
		}
	}
}

// awaitError waits until the network has answered a datagram of c with an error.
func awaitError(t *testing.T, c net.Conn, want syscall.Errno) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		got := syscall.Errno(sockopt(t, c, unix.SOL_SOCKET, unix.SO_ERROR))
		if got == want {
			return
		}
		if got != 0 || time.Now().After(deadline) {
			t.Fatalf("the network answers with %d (%v), expected %v", int(got), got, want)
		}
	}
}

// A sender that allows fragments gets them: the stack cuts what is too big.
func TestTooBigIsFragmented(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: ebpfRouting, remoteMTU: 1400})
	server := n.b1.listenUDP(t, n.b1.v4)
	data := string(randomBytes(1450))
	p := eth(n.a1.mac, n.a1.gateway).ipv4(n.a1.v4, n.b1.v4).udp(1, echoPort).payload(data)
	p.flagsOff = 0 // may be fragmented
	n.a1.send(t, "eth0", p.bytes())
	if err := expect(server, []byte(data)); err != nil {
		t.Error(err)
	}
	n.dropsNothing(t)
}

// The node answers a packet that has no hop left, in its own name and with the sender's packet in it.
func TestTimeExceeded(t *testing.T) {
	for _, cfg := range []Config{ebpfRouting, {Masquerade: true}} {
		for _, family := range families {
			t.Run(fmt.Sprintf("%s/IPv%d", cfgName(cfg), family), func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t, options{cfg: cfg})
				for i, dst := range []netip.Addr{n.b1.addr(family), n.a2.addr(family)} {
					listener := n.a1.listenICMP(t, n.a1.addr(family))
					p := eth(n.a1.mac, n.a1.gateway).ip(n.a1.addr(family), dst).ttl(1).udp(uint16(1000+i), echoPort)
					n.a1.send(t, "eth0", p.bytes())
					kind := byte(11)
					if family == 6 {
						kind = 3
					}
					from, err := awaitICMP(listener, func(k, code byte, body []byte) bool {
						return k == kind && code == 0 && bytes.Contains(body, p.transport[:4])
					})
					if err != nil {
						t.Errorf("to %s: %v", dst, err)
					} else if from != n.a.addr(family) {
						t.Errorf("to %s: the answer comes from %s, not from the node", dst, from)
					}
				}
				n.dropsNothing(t)
			})
		}
	}
}

// A hop more is enough, and takes the packet there with one hop less.
func TestLastHopArrives(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: ebpfRouting})
	for _, family := range families {
		server := n.b1.listenUDP(t, n.b1.addr(family))
		// Node A takes one, node B takes one, the pod gets the last.
		n.a1.send(t, "eth0", eth(n.a1.mac, n.a1.gateway).ip(n.a1.addr(family), n.b1.addr(family)).ttl(3).udp(1, echoPort).payload("hi").bytes())
		if err := expect(server, []byte("hi")); err != nil {
			t.Errorf("IPv%d: %v", family, err)
		}
	}
	n.dropsNothing(t)
}

// Packets with options go through the stacks of both nodes, and arrive.
func TestOptionsArrive(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: ebpfRouting})
	for name, p := range map[string]packet{
		"IPv4 options":             eth(n.a1.mac, n.a1.gateway).ipv4(n.a1.v4, n.b1.v4).ipOptions(1, 1, 1, 0),
		"IPv6 hop-by-hop":          eth(n.a1.mac, n.a1.gateway).ipv6(n.a1.v6, n.b1.v6).extend(protoHopByHop),
		"IPv6 destination options": eth(n.a1.mac, n.a1.gateway).ipv6(n.a1.v6, n.b1.v6).extend(protoDstOptions),
	} {
		server := n.b1.listenUDP(t, p.dst)
		before := n.forwarded(t)
		n.a1.send(t, "eth0", p.udp(1, echoPort).payload(name).bytes())
		if err := expect(server, []byte(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		byStack := uint64(2)
		if name == "IPv6 destination options" {
			byStack = 0
		}
		if by := n.forwarded(t) - before; by != byStack {
			t.Errorf("%s: the stacks have forwarded %d packets, expected %d", name, by, byStack)
		}
		server.Close()
	}
	n.dropsNothing(t)
}

// What a pod must not send does not arrive anywhere, and is counted. The genuine packet behind it does.
func TestSpoofedNeverArrives(t *testing.T) {
	for _, cfg := range everyConfig() {
		t.Run(cfgName(cfg), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, options{cfg: cfg})
			spoofed := uint64(0)
			for _, family := range families {
				for _, dst := range []*pod{n.b1, n.a2} {
					server := dst.listenUDP(t, dst.addr(family))
					own := eth(n.a1.mac, n.a1.gateway).ip(n.a1.addr(family), dst.addr(family)).udp(1, echoPort)
					var frames [][]byte
					for _, src := range []member{podA2, podB, ghost, nodeA, world} {
						if src.addr(family) != dst.addr(family) {
							frames = append(frames, eth(n.a1.mac, n.a1.gateway).ip(src.addr(family), dst.addr(family)).udp(1, echoPort).payload("spoofed").bytes())
						}
					}
					n.a1.send(t, "eth0", append(frames, own.payload("genuine").bytes())...)
					if err := expect(server, []byte("genuine")); err != nil {
						t.Errorf("IPv%d: %v", family, err)
					}
					spoofed += uint64(len(frames))
					n.awaitDropped(t, n.a, map[string]uint64{"from_pod spoofed_source": spoofed})
					expectNothing(t, server)
					server.Close()
				}
			}
		})
	}
}

// Frames of every length up to a whole header: real devices carry them, BPF_PROG_TEST_RUN does not.
func TestTruncated(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: ebpfRouting})
	var frames [][]byte
	for _, family := range families {
		header := ipv4Len
		if family == 6 {
			header = ipv6Len
		}
		whole := eth(n.a1.mac, n.a1.gateway).ip(n.a1.addr(family), n.b1.addr(family)).udp(1, echoPort).bytes()
		for size := ethLen; size < ethLen+header; size++ {
			frames = append(frames, whole[:size])
		}
	}
	n.a1.send(t, "eth0", frames...)
	n.awaitDropped(t, n.a, map[string]uint64{"from_pod truncated": uint64(len(frames))})

	// The same from the wire and for a pod: the stack's to judge, and no harm to what follows.
	for _, f := range frames {
		copy(f, append(n.a.mac[:], router[:]...))
	}
	server := n.a1.listenUDP(t, n.a1.v4)
	genuine := eth(router, n.a.mac).ipv4(n.b1.v4, n.a1.v4).udp(1, echoPort).payload("genuine").bytes()
	n.world.send(t, "eth0", append(frames, genuine)...)
	if err := expect(server, []byte("genuine")); err != nil {
		t.Error(err)
	}
	n.awaitDropped(t, n.a, map[string]uint64{"from_pod truncated": uint64(len(frames))})
}

// A pod cannot put a tagged frame on the wire, and a frame of a VLAN on the wire does not get into a pod.
func TestVLAN(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: ebpfRouting})
	for _, family := range families {
		out := eth(n.a1.mac, n.a1.gateway).ip(n.a1.addr(family), n.b1.addr(family)).udp(1, echoPort)
		here := eth(n.a1.mac, n.a1.gateway).ip(n.a1.addr(family), n.a2.addr(family)).udp(1, echoPort)
		in := eth(n.b.mac, n.a.mac).ip(n.b1.addr(family), n.a1.addr(family)).udp(1, echoPort)
		for _, c := range []struct {
			name   string
			from   place
			to     *pod
			packet packet
		}{{"to the wire", n.a1.place, n.b1, out}, {"to a pod here", n.a1.place, n.a2, here}, {"from the wire", n.b.place, n.a1, in}} {
			server := c.to.listenUDP(t, c.to.addr(family))
			c.from.send(t, "eth0", tagged(c.packet.payload("tagged").bytes(), 100), c.packet.payload("plain").bytes())
			if err := expect(server, []byte("plain")); err != nil {
				t.Errorf("IPv%d %s: %v", family, c.name, err)
			}
			expectNothing(t, server)
			server.Close()
		}
	}
	n.awaitDropped(t, n.a, map[string]uint64{"from_pod not_ip": 4})
}

// A tag that says priority alone makes of a frame no other than it is without: neither of one that a pod may get, nor of a forged one. More
// of them than anybody sends are not understood.
func TestPriorityTags(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: ebpfRouting})
	for _, family := range families {
		server := n.a1.listenUDP(t, n.a1.addr(family))
		in := func(from *pod, payload string) []byte {
			return eth(n.b.mac, n.a.mac).ip(from.addr(family), n.a1.addr(family)).udp(1, echoPort).payload(payload).bytes()
		}
		forged := in(n.a2, "forged")
		n.b.send(t, "eth0", tagged(forged, 0), tagged(forged, 0xe000), tagged(forged, 0, 0), tagged(in(n.b1, "much"), 0, 0, 0))
		for _, tags := range [][]uint16{{0}, {0xe000}, {0, 0}} {
			n.b.send(t, "eth0", tagged(in(n.b1, "true"), tags...))
			if err := expect(server, []byte("true")); err != nil {
				t.Errorf("IPv%d with tags %v: %v", family, tags, err)
			}
		}
		expectNothing(t, server)
		server.Close()
	}
	n.awaitDropped(t, n.a, map[string]uint64{"from_wire invalid_source": 6, "from_wire malformed": 2})
}

// tagged puts IEEE 802.1Q tags into a frame.
func tagged(frame []byte, tags ...uint16) []byte {
	var all []byte
	for _, tag := range tags {
		all = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(all, etherVLAN), tag)
	}
	return slices.Concat(frame[:12], all, frame[12:])
}

// awaitDropped waits until the counters of a node are want: nothing less and nothing else.
func (n *network) awaitDropped(t *testing.T, node *node, want map[string]uint64) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got := node.dropped(t)
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("node %s dropped %v, expected %v", node.v4, got, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// A stale host route to the wrong pod delivers nothing.
func TestWrongPod(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, options{cfg: Config{Masquerade: true}})
	server := n.a2.listenUDP(t, addr("0.0.0.0"))
	n.a.send(t, n.a2.pair.HostName,
		eth(n.a2.gateway, n.a2.mac).ipv4(n.a.v4, n.a2.v4).udp(1, echoPort).payload("right").bytes())
	if err := expect(server, []byte("right")); err != nil {
		t.Error(err)
	}
	n.a.send(t, n.a2.pair.HostName,
		eth(n.a2.gateway, n.a2.mac).ipv4(n.a.v4, n.a1.v4).udp(1, echoPort).payload("wrong").bytes(),
		eth(n.a2.gateway, n.a2.mac).ipv6(n.a.v6, n.a1.v6).udp(1, echoPort).payload("wrong").bytes())
	n.awaitDropped(t, n.a, map[string]uint64{"to_pod invalid_destination": 2})
	expectNothing(t, server)
}
