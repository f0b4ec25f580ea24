package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/capture"
	"github.com/beeline-cni/beeline/test/netlab"
)

// external is a cluster of two nodes, and a machine on their link that is not in the cluster.
type external struct {
	*cluster
	// outside is the external machine; it has routes to the pods of here.
	outside    machine
	here       *node
	node, peer machine // here, and the other node
	pod, far   machine // pods on here and on the other node
}

// machine is a pod, a node, or the external machine.
type machine struct {
	name      string
	netns     testbed.Netns
	addresses []netip.Addr // IPv4 first
}

// newExternal starts agents with these flags on two of three nodes. The third has no manifest.
func newExternal(t *testing.T, flags ...string) *external {
	t.Helper()
	return newExternalOf(t, nil, flags...)
}

// newExternalOf uses the agents and the plugin of this build; nil is current.
func newExternalOf(t *testing.T, of *programs, flags ...string) *external {
	t.Helper()
	programs := of
	if programs == nil {
		built := current(t)
		programs = &built
	}
	c := newCluster(t, testbed.Options{Nodes: 3, IPv6: true})
	c.plugin = of
	if err := os.Remove(c.manifestFile(c.nodes[2])); err != nil {
		t.Fatal(err)
	}
	encryption := netlab.EncryptionOf(flags)
	c.giveKeys(c.nodes[:2], encryption)
	for _, n := range c.nodes[:2] {
		c.start(n, *programs, flags...)
	}
	for _, n := range c.nodes[:2] {
		c.waitReady(n)
	}
	if encryption != (netlab.Encryption{}) {
		c.join(c.nodes[:2])
	}
	host := func(name string, n *node) machine {
		end := machine{name: name, netns: n.Netns}
		for _, a := range n.Addresses {
			end.addresses = append(end.addresses, a.Addr())
		}
		return end
	}
	pod := func(name string, n *node) machine {
		p := c.addPod(n, name)
		return machine{name, p.Netns, p.Addresses}
	}
	w := &external{
		cluster: c, here: c.nodes[0],
		outside: host("external", c.nodes[2]), node: host("node", c.nodes[0]), peer: host("other node", c.nodes[1]),
		pod: pod("pod", c.nodes[0]), far: pod("far", c.nodes[1]),
	}
	w.routeToPods()
	return w
}

// routeToPods gives the external machine routes to the pods of the first node.
func (w *external) routeToPods() {
	w.t.Helper()
	err := w.outside.netns.Netlink(func(h *netlink.Handle) error {
		for i, pods := range w.here.PodCIDRs {
			if err := h.RouteAdd(&netlink.Route{Dst: testbed.IPNet(pods), Gw: w.node.addresses[i].AsSlice()}); err != nil {
				return fmt.Errorf("route to %s: %w", pods, err)
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// expect connects the client to the server over each protocol and both families. The server must see the address of
// seen.
func (w *external) expect(client, server, seen machine) {
	w.t.Helper()
	for i, to := range server.addresses {
		// TCP comes first: it sends again what is lost while a busy machine has not found its neighbour within three seconds.
		for _, by := range []struct {
			protocol string
			echo     func(client, server testbed.Netns, to netip.Addr) (netip.Addr, error)
		}{{"TCP", externalTCP}, {"UDP", externalUDP}, {"ICMP", externalPing}} {
			from, err := by.echo(client.netns, server.netns, to)
			if err != nil {
				w.t.Errorf("%s over %s, %s to %s: %v", by.protocol, family(to), client.name, server.name, err)
			} else if from != seen.addresses[i] {
				w.t.Errorf("%s over %s, %s to %s: source %s, want %s of the %s",
					by.protocol, family(to), client.name, server.name, from, seen.addresses[i], seen.name)
			}
		}
	}
}

// masqueradeDrops counts the packets that the node dropped as no_masquerade_address.
func (w *external) masqueradeDrops(n *node) (packets uint64) {
	w.t.Helper()
	all, err := n.api().Drops(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range all {
		if d.Reason == "no_masquerade_address" {
			packets += d.Packets
		}
	}
	return packets
}

func TestExternal(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			w := newExternal(t, "--routing", routing)
			w.expect(w.pod, w.outside, w.node)
			w.expect(w.outside, w.pod, w.outside)
			w.expect(w.pod, w.peer, w.pod)
			w.expect(w.peer, w.pod, w.peer)
			w.expect(w.pod, w.far, w.pod)
			w.expect(w.pod, w.node, w.pod)
			w.expect(w.node, w.pod, w.node)
			w.expect(w.node, w.outside, w.node)
			for i := range w.outside.addresses {
				w.expectRejection(w.pod, w.outside, i)
				w.expectRejection(w.outside, w.pod, i)
				w.expectFragments(w.pod, w.outside, i)
				w.expectFragments(w.outside, w.pod, i)
			}
			if n := w.masqueradeDrops(w.here); n > 0 {
				t.Errorf("%d packets dropped as no_masquerade_address", n)
			}
		})
	}
}

func TestExternalWithoutMasquerading(t *testing.T) {
	t.Parallel()
	w := newExternal(t, "--masquerade=false")
	w.expect(w.pod, w.outside, w.pod)
	w.expect(w.outside, w.pod, w.outside)
	w.expect(w.pod, w.peer, w.pod)
	w.expect(w.pod, w.node, w.pod)
	w.expect(w.node, w.pod, w.node)
}

// expectRejection sends to a closed port: the ICMP error must reach the client's socket.
func (w *external) expectRejection(client, server machine, i int) {
	w.t.Helper()
	to := netip.AddrPortFrom(server.addresses[i], closedPort)
	err := client.netns.Do(func() error {
		conn, err := net.Dial("udp", to.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("ping")); err != nil {
			return err
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
		return err
	})
	if !errors.Is(err, unix.ECONNREFUSED) {
		w.t.Errorf("%s to a closed port of %s at %s: %v, want ECONNREFUSED", client.name, server.name, to, err)
	}
}

// expectFragments sends a datagram larger than the MTU, and gets it back.
func (w *external) expectFragments(client, server machine, i int) {
	w.t.Helper()
	echo, err := externalEcho(server.netns, server.addresses[i])
	if err != nil {
		w.t.Fatal(err)
	}
	defer echo.Close()
	socket, err := externalDial(client.netns, echo)
	if err != nil {
		w.t.Fatal(err)
	}
	defer socket.Close()
	const size = 4000
	if _, n, err := externalRequest(socket, size); err != nil || n != size {
		w.t.Errorf("%s to %s at %s: %d of %d bytes: %v", client.name, server.name, server.addresses[i], n, size, err)
	}
}

// Masquerading needs neither netfilter rules nor an agent: after a flush of all rules, as by a firewall's restart, and
// without the agent, packets to the external network have the node's address, on old sockets and on new ones.
func TestExternalWithoutRulesAndAgent(t *testing.T) {
	t.Parallel()
	for _, routing := range []string{"ebpf", "kernel"} {
		t.Run(routing, func(t *testing.T) {
			w := newExternal(t, "--routing", routing)
			sockets := w.openSockets()
			w.flush()
			w.kill(w.here)
			for i, s := range sockets {
				w.untilMasqueraded(s, i)
			}
			w.expect(w.pod, w.outside, w.node)
			w.expect(w.outside, w.pod, w.outside)
			w.start(w.here, current(t), "--routing", routing)
			w.waitReady(w.here)
			for i, s := range sockets {
				w.untilMasqueraded(s, i)
			}
			if n := w.masqueradeDrops(w.here); n > 0 {
				t.Errorf("%d packets dropped as no_masquerade_address", n)
			}
		})
	}
}

// externalSocket is a UDP socket of the pod, connected to an external echo server.
type externalSocket struct{ socket, echo *net.UDPConn }

// openSockets opens one socket for each family and uses it.
func (w *external) openSockets() (sockets []*externalSocket) {
	w.t.Helper()
	for i, to := range w.outside.addresses {
		echo, err := externalEcho(w.outside.netns, to)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { echo.Close() })
		socket, err := externalDial(w.pod.netns, echo)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { socket.Close() })
		s := &externalSocket{socket, echo}
		w.untilMasqueraded(s, i)
		sockets = append(sockets, s)
	}
	return sockets
}

// untilMasqueraded sends until the external machine sees the node's address as the source.
func (w *external) untilMasqueraded(s *externalSocket, family int) {
	w.t.Helper()
	eventually(w.t, func() error {
		_ = s.socket.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		seen, _, err := externalRequest(s.socket, 1)
		if err == nil && seen != w.node.addresses[family] {
			w.t.Errorf("the external machine sees %s, want %s of the node", seen, w.node.addresses[family])
		}
		return err
	})
}

// flush deletes all rules on here, and adds a rule that keeps the kernel's connection tracking active.
func (w *external) flush() {
	w.t.Helper()
	const others = "flush ruleset; table inet others { chain c { type filter hook forward priority 0; ct state new accept; }; }"
	if _, err := w.node.netns.Output(w.t.Context(), "nft", others); err != nil {
		w.t.Fatal(err)
	}
}

// externalTCP connects and returns the client's address as the server sees it.
func externalTCP(client, server testbed.Netns, to netip.Addr) (seen netip.Addr, err error) {
	var listener net.Listener
	err = server.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		return err
	})
	if err != nil {
		return seen, err
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(conn.RemoteAddr().String()))
	}()
	reply := make([]byte, 64)
	err = client.Do(func() error {
		conn, err := net.DialTimeout("tcp", listener.Addr().String(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(reply)
		reply = reply[:n]
		return err
	})
	if err != nil {
		return seen, err
	}
	return externalAddr(string(reply))
}

func externalUDP(client, server testbed.Netns, to netip.Addr) (seen netip.Addr, err error) {
	echo, err := externalEcho(server, to)
	if err != nil {
		return seen, err
	}
	defer echo.Close()
	socket, err := externalDial(client, echo)
	if err != nil {
		return seen, err
	}
	defer socket.Close()
	_ = socket.SetReadDeadline(time.Now().Add(patience))
	seen, _, err = externalRequest(socket, len(capture.Marker))
	return seen, err
}

// externalEcho replies to each datagram with its source address, padded with blanks to the same length.
func externalEcho(server testbed.Netns, at netip.Addr) (socket *net.UDPConn, err error) {
	return externalEchoAt(server, netip.AddrPortFrom(at, 0))
}

func externalEchoAt(server testbed.Netns, at netip.AddrPort) (socket *net.UDPConn, err error) {
	err = server.Do(func() (err error) {
		socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := socket.ReadFromUDPAddrPort(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				reply := from.String()
				reply += strings.Repeat(" ", max(0, n-len(reply)))
				_, _ = socket.WriteToUDPAddrPort([]byte(reply), from)
			}
		}
	}()
	return socket, nil
}

func externalDial(client testbed.Netns, server *net.UDPConn) (socket *net.UDPConn, err error) {
	err = client.Do(func() (err error) {
		socket, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
		return err
	})
	return socket, err
}

// externalRequest sends size bytes to an echo server. It returns the source address that the server sees, and the length of
// the reply.
func externalRequest(socket *net.UDPConn, size int) (seen netip.Addr, n int, err error) {
	message := make([]byte, size)
	copy(message, capture.Marker)
	if _, err := socket.Write(message); err != nil {
		return seen, 0, err
	}
	reply := make([]byte, 1<<16)
	if n, err = socket.Read(reply); err != nil {
		return seen, n, err
	}
	seen, err = externalAddr(strings.TrimSpace(string(reply[:n])))
	return seen, n, err
}

func externalAddr(text string) (netip.Addr, error) {
	at, err := netip.ParseAddrPort(text)
	return at.Addr().Unmap(), err
}

// Types of ICMP (RFC 792) and ICMPv6 (RFC 4443) messages.
const (
	echoRequestIPv4, echoReplyIPv4 = 8, 0
	echoRequestIPv6, echoReplyIPv6 = 128, 129
)

var externalSequence atomic.Uint32

// externalPing sends an echo request and returns its source address as the server sees it. The reply must come from
// the destination address.
func externalPing(client, server testbed.Netns, to netip.Addr) (seen netip.Addr, err error) {
	network, request, reply := "ip4:icmp", byte(echoRequestIPv4), byte(echoReplyIPv4)
	if to.Is6() {
		network, request, reply = "ip6:ipv6-icmp", echoRequestIPv6, echoReplyIPv6
	}
	open := func(in testbed.Netns) (socket net.PacketConn, err error) {
		err = in.Do(func() (err error) {
			socket, err = net.ListenPacket(network, "")
			return err
		})
		if err == nil {
			err = socket.SetReadDeadline(time.Now().Add(patience))
		}
		return socket, err
	}
	there, err := open(server)
	if err != nil {
		return seen, err
	}
	defer there.Close()
	here, err := open(client)
	if err != nil {
		return seen, err
	}
	defer here.Close()

	// Type, code, checksum, identifier, sequence number, data. NAT may change the identifier, not the data.
	message := make([]byte, 16)
	message[0] = request
	// Each ping has its own identifier, like a program of its own.
	sequence := externalSequence.Add(1)
	binary.BigEndian.PutUint16(message[4:], uint16(os.Getpid())+uint16(sequence))
	binary.BigEndian.PutUint32(message[8:], uint32(os.Getpid()))
	binary.BigEndian.PutUint32(message[12:], sequence)
	if to.Is4() { // for ICMPv6 the kernel computes it
		binary.BigEndian.PutUint16(message[2:], internetChecksum(message))
	}
	if _, err := here.WriteTo(message, &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return seen, err
	}
	if seen, err = externalMessage(there, request, message[8:]); err != nil {
		return seen, err
	}
	for {
		from, err := externalMessage(here, reply, message[8:])
		if err != nil || from == to {
			return seen, err
		}
	}
}

// externalMessage reads until a message of that type with that data arrives, and returns its source.
func externalMessage(socket net.PacketConn, kind byte, data []byte) (from netip.Addr, err error) {
	buffer := make([]byte, 1500)
	for {
		n, sender, err := socket.ReadFrom(buffer)
		if err != nil {
			return from, err
		}
		if n == 8+len(data) && buffer[0] == kind && string(buffer[8:n]) == string(data) {
			from, _ = netip.AddrFromSlice(sender.(*net.IPAddr).IP)
			return from.Unmap(), nil
		}
	}
}

// internetChecksum computes the checksum of RFC 1071.
func internetChecksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
