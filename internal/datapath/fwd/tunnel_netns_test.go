package fwd_test

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

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
)

// throughTunnel counts the packets that the node has sent through the VXLAN device.
func throughTunnel(n *netlab.Node, t *testing.T) uint64 {
	t.Helper()
	var packets uint64
	n.Do(t, func() error {
		link, err := netlink.LinkByName(vxlan.Name)
		if err != nil {
			return err
		}
		packets = link.Attrs().Statistics.TxPackets
		return nil
	})
	return packets
}

// tunnelOptions are the configurations of a tunnel, with each choice at least twice: emulated machines run them all.
func tunnelOptions() map[string]netlab.Options {
	return map[string]netlab.Options{
		"over IPv4, reverse paths checked strictly": {Cfg: config.Datapath{EBPFRouting: true, Masquerade: true}, Tunnel: true, Strict: true},
		"over IPv6":                {Cfg: config.Datapath{EBPFRouting: true}, Tunnel: true, TunnelIPv6: true},
		"clsact filters":           {Cfg: config.Datapath{EBPFRouting: true, Masquerade: true}, Tunnel: true, Legacy: true},
		"kernel routing, strictly": {Cfg: config.Datapath{Masquerade: true}, Tunnel: true, Strict: true},
		"kernel routing over IPv6, clsact filters": {Cfg: config.Datapath{}, Tunnel: true, TunnelIPv6: true, Legacy: true},
	}
}

// Pods, and pods and nodes, reach each other through tunnels. Nothing has to know that they carry less: pods have the
// uplink's MTU and the first large packet finds out.
func TestTunnelCarries(t *testing.T) {
	for name, o := range tunnelOptions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := netlab.NewNetwork(t, o)
			before, forwarded, into := throughTunnel(n.A, t)+throughTunnel(n.B, t), n.Forwarded(t), deliveredPod(n.B1, t)
			for _, family := range fixtures.Families {
				t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
					netlab.Carries(t, n.A1.Netns, n.B1.Netns, n.A1.Addr(family), n.B1.Addr(family))
				})
			}
			// The node itself sends a few, is asked for an answer to the first packets that are too large, and cuts what came
			// in fragments.
			const few = 60
			if by := n.Forwarded(t) - forwarded; (by < few) != o.Cfg.EBPFRouting {
				t.Errorf("the stacks have forwarded %d packets", by)
			}
			if into := deliveredPod(n.B1, t) - into; (into < few) != o.Cfg.EBPFRouting {
				t.Errorf("%d packets went through the host's end of the receiver's device", into)
			}
			for _, family := range fixtures.Families {
				t.Run(fmt.Sprintf("IPv%d to the other node", family), func(t *testing.T) {
					findsMTU(t, n.A1.Netns, n.B.Netns, n.B.Addr(family))
					netlab.Carries(t, n.A1.Netns, n.B.Netns, n.A1.Addr(family), n.B.Addr(family))
				})
				t.Run(fmt.Sprintf("IPv%d from the other node", family), func(t *testing.T) {
					findsMTU(t, n.A2.Netns, n.B.Netns, n.B.Addr(family))
					netlab.Carries(t, n.B.Netns, n.A2.Netns, n.B.Addr(family), n.A2.Addr(family))
				})
				t.Run(fmt.Sprintf("IPv%d between pods of one node", family), func(t *testing.T) {
					netlab.Carries(t, n.A1.Netns, n.A2.Netns, n.A1.Addr(family), n.A2.Addr(family))
				})
			}
			if sent := throughTunnel(n.A, t) + throughTunnel(n.B, t) - before; sent < 200 {
				t.Errorf("only %d packets went through the tunnel", sent)
			}
			n.DropsNothing(t)
		})
	}
}

// findsMTU sends a datagram that fits the device and not the path, until an ICMP error has reached the sender:
// then it comes in fragments.
func findsMTU(t *testing.T, from, to netlab.Netns, dst netip.Addr) {
	t.Helper()
	server := to.ListenUDP(t, dst)
	defer server.Close()
	client := from.Dial(t, "udp", dst)
	large := netlab.RandomBytes(1452)
	for begin := time.Now(); time.Since(begin) < netlab.Patience; {
		_, _ = client.Write(large) // fails with the ICMP error for the one before
		if err := server.SetReadDeadline(time.Now().Add(netlab.NothingMore)); err != nil {
			t.Fatal(err)
		}
		if n, err := server.Read(make([]byte, 1<<16)); err == nil && n == len(large) {
			return
		}
	}
	t.Errorf("%d bytes to %s never came", len(large), dst)
}

// vxlanPacket puts a frame into a VXLAN packet (RFC 7348, 5) of a network.
func vxlanPacket(network uint32, frame []byte) []byte {
	header := make([]byte, 8, 8+len(frame))
	header[0] = 0x08
	binary.BigEndian.PutUint32(header[4:], network<<8)
	return append(header, frame...)
}

// Only nodes are listened to, and only on the cluster's network, whatever they bring.
func TestTunnelPeers(t *testing.T) {
	for _, routing := range []bool{true, false} {
		for _, ipv6 := range []bool{false, true} {
			cfg := config.Datapath{EBPFRouting: routing, Masquerade: true}
			t.Run(fmt.Sprintf("%s/over IPv6 %t", fixtures.CfgName(cfg), ipv6), func(t *testing.T) {
				t.Parallel()
				n := netlab.NewNetwork(t, netlab.Options{Cfg: cfg, Tunnel: true, TunnelIPv6: ipv6})
				server := n.A1.ListenUDP(t, n.A1.V4)
				frame := func(text string) []byte {
					return fixtures.Eth(fixtures.TunnelSender, fixtures.TunnelMAC).Ipv4(n.B1.V4, n.A1.V4).Udp(9, netlab.EchoPort).Payload(text).Bytes()
				}
				send := func(from netlab.Netns, payload []byte) {
					t.Helper()
					from.Do(t, func() error {
						c, err := net.Dial("udp", netip.AddrPortFrom(n.A.End(ipv6), fixtures.VxlanPort).String())
						if err != nil {
							return err
						}
						defer c.Close()
						_, err = c.Write(payload)
						return err
					})
				}
				send(*n.External, vxlanPacket(1, frame("from a stranger")))
				send(n.B.Netns, vxlanPacket(2, frame("of another network")))
				send(n.B.Netns, vxlanPacket(1, fixtures.Eth(fixtures.TunnelSender, fixtures.TunnelMAC).Ether(fixtures.EtherARP).Payload("who has").Bytes()))
				n.AwaitDropped(t, n.A, map[string]uint64{"from_tunnel unknown_tunnel_peer": 2, "from_tunnel not_ip": 1})
				send(n.B.Netns, vxlanPacket(1, frame("from a node")))
				if err := netlab.Expect(server, []byte("from a node")); err != nil {
					t.Error(err)
				}
				// What was decided about a node's packets is not for strangers with the same addresses inside.
				send(*n.External, vxlanPacket(1, frame("from a stranger again")))
				n.AwaitDropped(t, n.A, map[string]uint64{"from_tunnel unknown_tunnel_peer": 3, "from_tunnel not_ip": 1})
				netlab.ExpectNothing(t, server)
				// A pod of a former range has a prefix of its own, as nodes have.
				former := maps.Clone(n.A.Routes)
				for _, a := range []netip.Addr{n.A2.V4, n.A2.V6} {
					former[netip.PrefixFrom(a, a.BitLen())] = fwd.Route{Kind: fwd.RouteLocal}
				}
				if _, err := n.A.D.Routes.Sync(former); err != nil {
					t.Fatal(err)
				}
				send(n.A2.Netns, vxlanPacket(1, frame("from a pod")))
				n.AwaitDropped(t, n.A, map[string]uint64{"from_tunnel unknown_tunnel_peer": 4, "from_tunnel not_ip": 1})
				netlab.ExpectNothing(t, server)
			})
		}
	}
}

// Table differ in the port that their packets in the tunnel come from: what spreads load by ports can tell
// them apart.
func TestTunnelSpreadsConnections(t *testing.T) {
	n := netlab.NewNetwork(t, netlab.Options{Cfg: config.Datapath{EBPFRouting: true}, Tunnel: true})
	seen := watchVXLAN(n.B, t)
	n.B1.ServeUDP(t, n.B1.V4)
	const connections = 16
	for range connections {
		if err := netlab.EchoUDP(n.A1.Dial(t, "udp", n.B1.V4), 10); err != nil {
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
func watchVXLAN(n *netlab.Node, t *testing.T) func() uint16 {
	t.Helper()
	var fd int
	n.Do(t, func() (err error) {
		const ethPIP = 0x0008 // ETH_P_IP in network order
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, ethPIP)
		if err != nil {
			return err
		}
		timeout := unix.NsecToTimeval(int64(netlab.Patience / time.Nanosecond))
		return errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout),
			unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: n.Uplink.Index, Protocol: ethPIP}))
	})
	t.Cleanup(func() { unix.Close(fd) })
	return func() uint16 {
		t.Helper()
		b := make([]byte, 1<<16)
		for {
			size, from, err := netlab.Receive(fd, b)
			if err != nil {
				t.Fatal(err)
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype != unix.PACKET_HOST || size < 28 || b[9] != unix.IPPROTO_UDP {
				continue
			}
			if binary.BigEndian.Uint16(b[22:]) == fixtures.VxlanPort {
				return binary.BigEndian.Uint16(b[20:])
			}
		}
	}
}
