package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/device"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// TestSpoofedSource sends from a pod with the source address of another pod, of the node and of an external host. No
// such packet arrives, and all of them are counted.
func TestSpoofedSource(t *testing.T) {
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			c := up(t, testbed.Options{IPv6: true}, "--routing", routing)
			p := c.addPods()
			liar := p.a.Netns
			targets := map[string]*testbed.Pod{"pod of the node": p.b, "pod of another node": p.far, "node": asPod(c.nodes[0], p.a)}
			stranger := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")}
			for i := range p.a.Addresses {
				for whose, source := range map[string]netip.Addr{"another pod's": p.b.Addresses[i], "the node's": c.nodes[0].Addresses[i].Addr(), "a stranger's": stranger[i]} {
					for name, target := range targets {
						if target.Addresses[i] == source {
							continue // the packet would not leave the pod
						}
						what := fmt.Sprintf("%s address %s to the %s", whose, source, name)
						c.wantNotReceived(what, liar, target.Netns, source, netip.AddrPortFrom(target.Addresses[i], 4242))
					}
				}
			}
		})
	}
}

// wantNotReceived sends packets with a spoofed source and then one with the pod's own. It fails the test unless only the
// last one arrives and the others are counted.
func (c *cluster) wantNotReceived(what string, from, to testbed.Netns, source netip.Addr, target netip.AddrPort) {
	c.t.Helper()
	const spoofed, own = 0xff, 0x11 // data
	var receiver net.PacketConn
	err := to.Do(func() (err error) {
		receiver, err = net.ListenPacket("udp", target.String())
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	defer receiver.Close()
	before := c.spoofed(c.nodes[0])
	const count = 3
	if err := sendAs(from, source, target, []byte{spoofed}, count); err != nil {
		c.t.Fatalf("send with %s: %v", what, err)
	}
	if err := sendAs(from, netip.Addr{}, target, []byte{own}, 1); err != nil {
		c.t.Fatalf("send with the pod's own address: %v", err)
	}
	// Packets of one pod keep their order, so a spoofed one would arrive first.
	if err := receiver.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	buffer := make([]byte, 64)
	n, seen, err := receiver.ReadFrom(buffer)
	if err != nil || n != 1 || buffer[0] != own {
		c.t.Errorf("%s: %d bytes %x from %v arrive first: %v", what, n, buffer[:n], seen, err)
	}
	if got := c.spoofed(c.nodes[0]) - before; got != count {
		c.t.Errorf("%s: %d packets counted as spoofed, want %d", what, got, count)
	}
}

// sendAs sends UDP packets with this source address; the zero address is the pod's own.
func sendAs(from testbed.Netns, source netip.Addr, target netip.AddrPort, data []byte, count int) error {
	var local *net.UDPAddr
	if source.IsValid() {
		local = &net.UDPAddr{IP: source.AsSlice()}
		if err := holdAddress(from, source); err != nil {
			return err
		}
		defer dropAddress(from, source)
	}
	return from.Do(func() error {
		conn, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(target))
		if err != nil {
			return err
		}
		defer conn.Close()
		for range count {
			if _, err := conn.Write(data); err != nil {
				return err
			}
		}
		return nil
	})
}

// holdAddress adds an address to lo, so that the kernel accepts it as a source.
func holdAddress(netns testbed.Netns, address netip.Addr) error {
	return onLoopback(netns, address, func(h *netlink.Handle, l netlink.Link, a *netlink.Addr) error { return h.AddrAdd(l, a) })
}

func dropAddress(netns testbed.Netns, address netip.Addr) {
	_ = onLoopback(netns, address, func(h *netlink.Handle, l netlink.Link, a *netlink.Addr) error { return h.AddrDel(l, a) })
}

func onLoopback(netns testbed.Netns, address netip.Addr, do func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	return netns.Netlink(func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		a := &netlink.Addr{IPNet: testbed.IPNet(netip.PrefixFrom(address, address.BitLen()))}
		if address.Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		return do(h, lo, a)
	})
}

// spoofed reads the drops of packets with a spoofed source from `beeline drops`.
func (c *cluster) spoofed(n *node) uint64 {
	c.t.Helper()
	return c.dropped(n, "from_pod", "spoofed_source")
}

func (c *cluster) dropped(n *node, program, reason string) uint64 {
	c.t.Helper()
	var drops []agentapi.Drop
	c.commandJSON(n, &drops, "drops")
	for _, d := range drops {
		if d.Program == program && d.Reason == reason {
			return d.Packets
		}
	}
	return 0
}

// TestRawFrames sends raw frames from a pod: with a spoofed source, another EtherType, and malformed headers. None
// arrives, and each is counted with its reason.
func TestRawFrames(t *testing.T) {
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	p := c.addPods()
	var receiver net.PacketConn
	target := netip.AddrPortFrom(p.b.Addresses[0], 4242)
	if err := p.b.Do(func() (err error) {
		receiver, err = net.ListenPacket("udp", target.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	raw, err := newRawSocket(p.a.Netns, c.hostMAC(n, p.a))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.close()

	own, other := p.a.Addresses[0], p.far.Addresses[0]
	for _, frame := range []struct {
		reason    string
		etherType uint16
		data      []byte
	}{
		{"spoofed_source", unix.ETH_P_IP, udpPacket(other, target, 0xff)},
		{"not_ip", 0x88b5, make([]byte, 60)}, // local experimental EtherType
		{"truncated", unix.ETH_P_IP, udpPacket(own, target, 0xff)[:10]},
		{"malformed", unix.ETH_P_IP, append([]byte{0x41}, udpPacket(own, target, 0xff)[1:]...)},
	} {
		before := c.dropped(n, "from_pod", frame.reason)
		if err := raw.send(frame.etherType, frame.data); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			if got := c.dropped(n, "from_pod", frame.reason) - before; got != 1 {
				return fmt.Errorf("%s: %d drops counted, want 1", frame.reason, got)
			}
			return nil
		})
	}
	if err := raw.send(unix.ETH_P_IP, udpPacket(own, target, 0x11)); err != nil {
		t.Fatal(err)
	}
	if err := receiver.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	if size, from, err := receiver.ReadFrom(buffer); err != nil || size != 1 || buffer[0] != 0x11 {
		t.Errorf("%x from %v arrives first: %v", buffer[:size], from, err)
	}
}

// hostMAC returns the MAC address of a pod's host device.
func (c *cluster) hostMAC(n *node, pod *testbed.Pod) net.HardwareAddr {
	c.t.Helper()
	e, err := c.endpoint(n, pod)
	if err != nil {
		c.t.Fatal(err)
	}
	mac, err := net.ParseMAC(e.HostMAC)
	if err != nil {
		c.t.Fatal(err)
	}
	return mac
}

// rawSocket sends frames on a pod's device.
type rawSocket struct {
	fd       int
	index    int
	from, to net.HardwareAddr
}

func newRawSocket(netns testbed.Netns, to net.HardwareAddr) (*rawSocket, error) {
	r := &rawSocket{to: to}
	return r, netns.Do(func() error {
		device, err := net.InterfaceByName(podInterface)
		if err != nil {
			return err
		}
		r.index, r.from = device.Index, device.HardwareAddr
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
}

func (r *rawSocket) send(etherType uint16, data []byte) error {
	frame := append(append([]byte{}, r.to...), r.from...)
	frame = binary.BigEndian.AppendUint16(frame, etherType)
	return netlab.Sent(unix.Sendto(r.fd, append(frame, data...), 0, &unix.SockaddrLinklayer{Ifindex: r.index}))
}

func (r *rawSocket) close() { _ = errors.Join(unix.Close(r.fd)) }

// udpPacket is an IPv4 UDP packet with one byte of data and no UDP checksum.
func udpPacket(from netip.Addr, to netip.AddrPort, data byte) []byte {
	const ip, udp = 20, 8
	p := make([]byte, ip+udp+1)
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	copy(p[12:], from.AsSlice())
	copy(p[16:], to.Addr().AsSlice())
	var sum uint32
	for i := 0; i < ip; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(p[ip:], 4242)
	binary.BigEndian.PutUint16(p[ip+2:], to.Port())
	binary.BigEndian.PutUint16(p[ip+4:], udp+1)
	p[ip+udp] = data
	return p
}

// A device that the agent has not added yet has no program: nothing that its pod sends is forwarded, such as a datagram
// with the source of a pod that a policy admits.
func TestNothingIsForwardedBeforeAdd(t *testing.T) {
	t.Parallel()
	g := newPolicyLab(t)
	g.policy("udp", fmt.Sprintf("{podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: %d, protocol: UDP}]}]}", backendPort))
	listener, err := datagrams(g.pod.netns, g.pod.addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer listener.socket.Close()
	listener.isReached(t, g.far.netns, g.pod.addresses[0])

	attacker := g.newPod(g.here, "attacker")
	conf, forged := runtimeConf(attacker), netip.AddrPortFrom(g.far.addresses[0], 4444)
	err = g.here.Do(func() error {
		pair, err := device.Pods.Create(device.PodSpec{Kind: device.Kind(testenv.DeviceKind()), ContainerID: conf.ContainerID, IfName: conf.IfName, Netns: conf.NetNS})
		if err != nil {
			return err
		}
		own := device.PodConfig{Addresses: []netip.Prefix{netip.PrefixFrom(forged.Addr(), 32)}, Gateways: []netip.Addr{netip.MustParseAddr("169.254.1.1")}, HostMAC: pair.HostMAC}
		return device.Pods.Configure(conf.NetNS, conf.IfName, own)
	})
	if err != nil {
		t.Fatal(err)
	}
	err = attacker.Do(func() error {
		socket, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(forged), net.UDPAddrFromAddrPort(netip.AddrPortFrom(g.pod.addresses[0], backendPort)))
		if err != nil {
			return err
		}
		defer socket.Close()
		for range 20 {
			if _, err := socket.Write([]byte("forged")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	listener.isReached(t, g.far.netns, g.pod.addresses[0])
	if _, arrived := listener.sockets.Load(forged); arrived {
		t.Error("a forged datagram arrives from a device without programs")
	}
}
