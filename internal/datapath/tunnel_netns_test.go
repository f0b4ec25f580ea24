package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/device"
)

const vxlanPort = 4789

// end is this node's end of tunnels: the other node's routes lead to it.
func (n *node) end(ipv6 bool) netip.Addr {
	if ipv6 {
		return n.v6
	}
	return n.v4
}

// tunnel replaces the node's ways to another one, whose pods look like far, by a tunnel.
func (n *node) tunnel(tb testing.TB, other *node, far member, o options) {
	tb.Helper()
	end := other.end(o.tunnelIPv6)
	mtu := 1500 - device.TunnelOverhead(end)
	n.do(tb, func() (err error) {
		spec := device.TunnelSpec{Port: vxlanPort, MTU: mtu, Addresses: []netip.Addr{n.v4, n.v6}}
		// The programs follow in start, as when an agent adopts a device.
		if n.tunnelIndex, _, err = device.SyncTunnel(spec, func(int) error { return nil }); err != nil {
			return err
		}
		var sources []netip.Prefix
		for _, family := range families {
			pods, address := rangeOf(far.addr(family)), netip.PrefixFrom(other.addr(family), other.addr(family).BitLen())
			n.routes[pods] = tunnelRoute(n.tunnelIndex, end, mtu)
			n.routes[address] = n.routes[pods]
			toPods, toNode := device.TunnelRoute(pods, n.tunnelIndex, mtu), device.TunnelRoute(address, n.tunnelIndex, mtu)
			toPods.Source = n.addr(family)
			toNode.Table = device.TunnelTable
			if err := errors.Join(device.AddRoute(toPods), device.AddRoute(toNode)); err != nil {
				return err
			}
			sources = append(sources, rangeOf(n.pods[0].addr(family)))
		}
		_, err = device.SyncRules(sources)
		return err
	})
}

// throughTunnel counts the packets that the node has sent through the VXLAN device.
func (n *node) throughTunnel(t *testing.T) uint64 {
	t.Helper()
	var packets uint64
	n.do(t, func() error {
		link, err := netlink.LinkByName(device.TunnelName)
		if err != nil {
			return err
		}
		packets = link.Attrs().Statistics.TxPackets
		return nil
	})
	return packets
}

// tunnelOptions are the ways to have a tunnel, with each choice at least twice: emulated machines run them all.
func tunnelOptions() map[string]options {
	return map[string]options{
		"over IPv4, reverse paths checked strictly": {cfg: Config{EBPFRouting: true, Masquerade: true}, tunnel: true, strict: true},
		"over IPv6":                {cfg: Config{EBPFRouting: true}, tunnel: true, tunnelIPv6: true},
		"clsact filters":           {cfg: Config{EBPFRouting: true, Masquerade: true}, tunnel: true, legacy: true},
		"kernel routing, strictly": {cfg: Config{Masquerade: true}, tunnel: true, strict: true},
		"kernel routing over IPv6, clsact filters": {cfg: Config{}, tunnel: true, tunnelIPv6: true, legacy: true},
	}
}

// Pods, and pods and nodes, reach each other through tunnels. Nothing has to know that they carry less: pods have the
// uplink's MTU and the first large packet finds out.
func TestTunnelCarries(t *testing.T) {
	for name, o := range tunnelOptions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, o)
			before, forwarded, into := n.a.throughTunnel(t)+n.b.throughTunnel(t), n.forwarded(t), n.b1.delivered(t)
			for _, family := range families {
				t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
					carries(t, n.a1.place, n.b1.place, n.a1.addr(family), n.b1.addr(family))
				})
			}
			// The node itself sends a few, is asked for an answer to the first packets that are too large, and cuts what came
			// in fragments.
			const few = 60
			if by := n.forwarded(t) - forwarded; (by < few) != o.cfg.EBPFRouting {
				t.Errorf("the stacks have forwarded %d packets", by)
			}
			if into := n.b1.delivered(t) - into; (into < few) != o.cfg.EBPFRouting {
				t.Errorf("%d packets went through the host's end of the receiver's device", into)
			}
			for _, family := range families {
				t.Run(fmt.Sprintf("IPv%d to the other node", family), func(t *testing.T) {
					findsMTU(t, n.a1.place, n.b.place, n.b.addr(family))
					carries(t, n.a1.place, n.b.place, n.a1.addr(family), n.b.addr(family))
				})
				t.Run(fmt.Sprintf("IPv%d from the other node", family), func(t *testing.T) {
					findsMTU(t, n.a2.place, n.b.place, n.b.addr(family))
					carries(t, n.b.place, n.a2.place, n.b.addr(family), n.a2.addr(family))
				})
				t.Run(fmt.Sprintf("IPv%d between pods of one node", family), func(t *testing.T) {
					carries(t, n.a1.place, n.a2.place, n.a1.addr(family), n.a2.addr(family))
				})
			}
			if sent := n.a.throughTunnel(t) + n.b.throughTunnel(t) - before; sent < 200 {
				t.Errorf("only %d packets went through the tunnel", sent)
			}
			n.dropsNothing(t)
		})
	}
}

// findsMTU sends a datagram that the device takes and the path does not, until the answer to it has told the sender:
// then it comes in fragments.
func findsMTU(t *testing.T, from, to place, dst netip.Addr) {
	t.Helper()
	server := to.listenUDP(t, dst)
	defer server.Close()
	client := from.dial(t, "udp", dst)
	large := randomBytes(1452)
	for begin := time.Now(); time.Since(begin) < patience; {
		_, _ = client.Write(large) // the answer to the one before is an error of this one
		if err := server.SetReadDeadline(time.Now().Add(nothingMore)); err != nil {
			t.Fatal(err)
		}
		if n, err := server.Read(make([]byte, 1<<16)); err == nil && n == len(large) {
			return
		}
	}
	t.Errorf("%d bytes to %s never came", len(large), dst)
}

// vxlan puts a frame into a VXLAN packet (RFC 7348, 5) of a network.
func vxlan(network uint32, frame []byte) []byte {
	header := make([]byte, 8, 8+len(frame))
	header[0] = 0x08
	binary.BigEndian.PutUint32(header[4:], network<<8)
	return append(header, frame...)
}

// Only nodes are listened to, and only on the cluster's network, whatever they bring.
func TestTunnelPeers(t *testing.T) {
	for _, routing := range []bool{true, false} {
		for _, ipv6 := range []bool{false, true} {
			cfg := Config{EBPFRouting: routing, Masquerade: true}
			t.Run(fmt.Sprintf("%s/over IPv6 %t", cfgName(cfg), ipv6), func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t, options{cfg: cfg, tunnel: true, tunnelIPv6: ipv6})
				server := n.a1.listenUDP(t, n.a1.v4)
				frame := func(text string) []byte {
					return eth(tunnelSender, tunnelMAC).ipv4(n.b1.v4, n.a1.v4).udp(9, echoPort).payload(text).bytes()
				}
				send := func(from place, payload []byte) {
					t.Helper()
					from.do(t, func() error {
						c, err := net.Dial("udp", netip.AddrPortFrom(n.a.end(ipv6), vxlanPort).String())
						if err != nil {
							return err
						}
						defer c.Close()
						_, err = c.Write(payload)
						return err
					})
				}
				send(*n.world, vxlan(1, frame("from a stranger")))
				send(n.b.place, vxlan(2, frame("of another network")))
				send(n.b.place, vxlan(1, eth(tunnelSender, tunnelMAC).ether(etherARP).payload("who has").bytes()))
				n.awaitDropped(t, n.a, map[string]uint64{"from_tunnel unknown_tunnel_peer": 2, "from_tunnel not_ip": 1})
				send(n.b.place, vxlan(1, frame("from a node")))
				if err := expect(server, []byte("from a node")); err != nil {
					t.Error(err)
				}
				// What was decided about a node's packets is not for strangers with the same addresses inside.
				send(*n.world, vxlan(1, frame("from a stranger again")))
				n.awaitDropped(t, n.a, map[string]uint64{"from_tunnel unknown_tunnel_peer": 3, "from_tunnel not_ip": 1})
				expectNothing(t, server)
				// A pod of a former range has a prefix of its own, as nodes have.
				former := maps.Clone(n.a.routes)
				for _, a := range []netip.Addr{n.a2.v4, n.a2.v6} {
					former[netip.PrefixFrom(a, a.BitLen())] = Route{Kind: RouteLocal}
				}
				if _, err := n.a.d.Routes.Sync(former); err != nil {
					t.Fatal(err)
				}
				send(n.a2.place, vxlan(1, frame("from a pod")))
				n.awaitDropped(t, n.a, map[string]uint64{"from_tunnel unknown_tunnel_peer": 4, "from_tunnel not_ip": 1})
				expectNothing(t, server)
			})
		}
	}
}

// Connections differ in the port that their packets in the tunnel come from: what spreads load by ports can tell
// them apart.
func TestTunnelSpreadsConnections(t *testing.T) {
	n := newNetwork(t, options{cfg: Config{EBPFRouting: true}, tunnel: true})
	seen := n.b.watchVXLAN(t)
	n.b1.serveUDP(t, n.b1.v4)
	const connections = 16
	for range connections {
		if err := echoUDP(n.a1.dial(t, "udp", n.b1.v4), 10); err != nil {
			t.Fatal(err)
		}
	}
	ports := map[uint16]bool{}
	for range connections {
		ports[seen()] = true
	}
	if len(ports) < connections/2 {
		t.Errorf("%d connections come from the ports %v", connections, ports)
	}
}

// watchVXLAN gives a function that waits for the next VXLAN packet over IPv4 which arrives at the node and gives its
// source port.
func (n *node) watchVXLAN(t *testing.T) func() uint16 {
	t.Helper()
	var fd int
	n.do(t, func() (err error) {
		const ethPIP = 0x0008 // ETH_P_IP in network order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, ethPIP)
		if err != nil {
			return err
		}
		timeout := unix.NsecToTimeval(int64(patience / time.Nanosecond))
		return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: n.uplink.Index, Protocol: ethPIP}))
	})
	t.Cleanup(func() { unix.Close(fd) })
	return func() uint16 {
		t.Helper()
		b := make([]byte, 1<<16)
		for {
			size, from, err := receive(fd, b)
			if err != nil {
				t.Fatal(err)
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype != unix.PACKET_HOST || size < 28 || b[9] != unix.IPPROTO_UDP {
				continue
			}
			if binary.BigEndian.Uint16(b[22:]) == vxlanPort {
				return binary.BigEndian.Uint16(b[20:])
			}
		}
	}
}
