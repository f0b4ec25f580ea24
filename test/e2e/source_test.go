package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device/vxlan"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// tunnelPort is the UDP port of VXLAN.
const tunnelPort = 4789

// origins is a service lab whose nodes reach each other's pods through tunnels. Forged packets must not reach the UDP
// server in a pod of here.
type origins struct {
	*serviceLab
	near   machine // a second pod of here
	server net.PacketConn
}

func newOrigins(t *testing.T) *origins {
	o := &origins{serviceLab: newServiceLab(t, "--tunnel=vxlan")}
	p := o.addPod(o.here, "near")
	o.near = machine{"near", p.Netns, p.Addresses}
	err := o.pod.netns.Do(func() (err error) {
		o.server, err = net.ListenPacket("udp", netip.AddrPortFrom(o.pod.addresses[0], backendPort).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.server.Close() })
	return o
}

// TestForgedTunnels sends forged VXLAN packets from pods and the external machine, on each path that may give them a
// node's source address. None arrives in a pod, and each drop is counted.
func TestForgedTunnels(t *testing.T) {
	o := newOrigins(t)
	second := o.node.addresses[0].As4()
	second[3] = 77
	o.hold(o.here, netip.AddrFrom4(second))
	service := bytes.ReplaceAll(serviceYAML("forged", serviceOfFar, "  type: NodePort", o.node), fmt.Appendf(nil, "port: %d", backendPort), fmt.Appendf(nil, "port: %d", tunnelPort))
	o.writeManifest("forged.yaml", onNodes(service))
	eventually(t, func() error {
		all, err := o.nodes[1].api().Services(t.Context(), agentapi.ServiceFilter{})
		if err == nil && (len(all) < 2 || len(all[0].Frontends) == 0 || len(all[1].Frontends) == 0) {
			err = fmt.Errorf("no frontends of the Service: %+v", all)
		}
		return err
	})

	payload := o.forgedVXLAN()
	asVIP, asNode := netip.AddrPortFrom(netip.AddrFrom4(second), tunnelPort), netip.AddrPortFrom(o.node.addresses[0], tunnelPort)
	for _, attack := range []struct {
		name string
		send func() error
		// node, program and reason of the drop
		at              *node
		program, reason string
	}{
		{"a pod, at the node's InternalIP", func() error { return sendUDP(o.far.netns, asNode, payload) }, o.here, "from_tunnel", "unknown_tunnel_peer"},
		{"a pod of the same node", func() error { return sendUDP(o.near.netns, asNode, payload) }, o.here, "from_tunnel", "unknown_tunnel_peer"},
		{"a pod, masqueraded, at another address of the node", func() error { return sendUDP(o.far.netns, asVIP, payload) }, o.nodes[1], "from_pod", "tunnel_port"},
		{"a pod, through a Service, packet by packet", func() error {
			return sendUDP(o.far.netns, netip.AddrPortFrom(serviceOfFar[0], servicePort), payload)
		}, o.nodes[1], "from_pod", "tunnel_port"},
		{"a process in a pod, through a Service", func() error {
			return sendByProcess(t, o.far.netns, netip.AddrPortFrom(serviceOfFar[0], servicePort))
		}, o.nodes[1], "from_pod", "tunnel_port"},
		{"the external machine, through a NodePort", func() error {
			return sendUDP(o.outside.netns, netip.AddrPortFrom(o.peer.addresses[0], nodePort), payload)
		}, o.nodes[1], "from_wire", "tunnel_port"},
		{"the other node, at another address of this one", func() error { return sendUDP(o.peer.netns, asVIP, payload) }, o.here, "from_tunnel", "tunnel_port"},
		{"the other node, in the name of a third one", func() error { return sendUDP(o.peer.netns, asNode, payload) }, o.here, "from_tunnel", "invalid_source"},
		{"a pod, at its node's loopback address", func() error { return o.sendToLoopback(payload) }, o.here, "from_tunnel", "unknown_tunnel_peer"},
	} {
		before := o.dropped(attack.at, attack.program, attack.reason)
		if err := attack.send(); err != nil {
			t.Fatalf("%s: %v", attack.name, err)
		}
		eventually(t, func() error {
			if got := o.dropped(attack.at, attack.program, attack.reason) - before; got != 1 {
				return fmt.Errorf("%s: %d drops counted in %s as %s, want 1", attack.name, got, attack.program, attack.reason)
			}
			return nil
		})
	}
	o.wantOnlyTrue()
}

// TestForgedOrigins sends packets from the external machine with source addresses of a local pod, and of a pod and a node
// behind a tunnel.
func TestForgedOrigins(t *testing.T) {
	o := newOrigins(t)
	for whose, source := range map[string]netip.Addr{"a pod here": o.near.addresses[0], "a tunnelled pod": o.far.addresses[0], "a tunnelled node": o.peer.addresses[0]} {
		before := o.dropped(o.here, "from_wire", "invalid_source")
		const count = 3
		if err := sendAs(o.outside.netns, source, netip.AddrPortFrom(o.pod.addresses[0], backendPort), []byte("forged"), count); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if got := o.dropped(o.here, "from_wire", "invalid_source") - before; got != count {
				return fmt.Errorf("source of %s: %d packets dropped, want %d", whose, got, count)
			}
			return nil
		})
	}
	o.wantOnlyTrue()
}

// forgedVXLAN is a VXLAN packet of the cluster's network, with a forged packet to the server inside.
func (o *origins) forgedVXLAN() []byte {
	frame := append([]byte{0x08, 0, 0, 0, 0, 0, 1, 0}, vxlan.MAC[:]...)
	frame = append(frame, vxlan.SenderMAC[:]...)
	frame = binary.BigEndian.AppendUint16(frame, unix.ETH_P_IP)
	return append(frame, udpPacket(o.near.addresses[0], netip.AddrPortFrom(o.pod.addresses[0], backendPort), 0xff)...)
}

// wantOnlyTrue fails the test unless the first datagram at the server is one that a pod of the other node sends with its
// own address.
func (o *origins) wantOnlyTrue() {
	o.t.Helper()
	if err := sendUDP(o.far.netns, netip.AddrPortFrom(o.pod.addresses[0], backendPort), []byte("true")); err != nil {
		o.t.Fatal(err)
	}
	_ = o.server.SetReadDeadline(time.Now().Add(patience))
	b := make([]byte, 64)
	n, from, err := o.server.ReadFrom(b)
	if err != nil || string(b[:n]) != "true" {
		o.t.Errorf("%q from %v arrives first: %v", b[:n], from, err)
	}
}

func sendUDP(from testbed.Netns, to netip.AddrPort, data []byte) error {
	return from.Do(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		_, err = c.Write(data)
		return errors.Join(err, c.Close())
	})
}

// sendByProcess sends a datagram from a process in the pod's cgroup, where programs translate sockets.
func sendByProcess(t *testing.T, from testbed.Netns, to netip.AddrPort) error {
	cmd := exec.CommandContext(t.Context(), "bash", "-c", fmt.Sprintf("echo VXLAN >/dev/udp/%s/%d", to.Addr(), to.Port()))
	return from.Run(cmd)
}

// sendToLoopback sends a frame to the loopback address of a pod's node, where route_localnet lets it in.
func (o *origins) sendToLoopback(payload []byte) error {
	o.sysctl(o.here, "net/ipv4/conf/all/route_localnet", "1")
	raw, err := newRawSocket(o.near.netns, o.hostMAC(o.here, &testbed.Pod{Name: "near", Addresses: o.near.addresses}))
	if err != nil {
		return err
	}
	defer raw.close()
	p := udpPacket(o.near.addresses[0], netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), tunnelPort), 0)
	p = append(p[:len(p)-1], payload...)
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	binary.BigEndian.PutUint16(p[24:], uint16(len(p)-20))
	return raw.send(unix.ETH_P_IP, withChecksum(p))
}

// withChecksum sets the checksum of an IPv4 header without options.
func withChecksum(p []byte) []byte {
	p[10], p[11] = 0, 0
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	return p
}

// hold adds an address to a node's uplink that its Node object does not have.
func (c *cluster) hold(n *node, a netip.Addr) {
	c.t.Helper()
	changeLink(c.t, n.Netns, testbed.Uplink, func(h *netlink.Handle, l netlink.Link) error {
		return h.AddrAdd(l, &netlink.Addr{IPNet: testbed.IPNet(netip.PrefixFrom(a, 24))})
	})
}
