package datapath

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/policy"
)

// sockets are those of a pod, in a network namespace of their own: a server that listens, and connections that nobody has opened
// (TCP_REPAIR), as an attacker makes them.
type sockets struct {
	place
	family int
}

// namespaceIDs counts the ids that pods' namespaces have in the stage's: one is free again only some time after its namespace is gone.
var namespaceIDs atomic.Int32

// newSockets gives a pod of the rig a namespace with its addresses, which the datapath knows by the id that it has in the stage's.
func (p *policyRig) newSockets(t testing.TB, pod member, device string, family int) sockets {
	t.Helper()
	id := 1000 + int(namespaceIDs.Add(1)) // above those that the kernel gives
	s := sockets{newPlace(t), family}
	s.do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{pod.v4, pod.v6} {
			one, err := netlink.ParseAddr(netip.PrefixFrom(a, a.BitLen()).String())
			if err != nil {
				return err
			}
			one.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(lo, one); err != nil {
				return fmt.Errorf("add address %s: %w", a, err)
			}
		}
		for _, destination := range []string{"0.0.0.0/0", "::/0"} {
			all, err := netlink.ParseIPNet(destination)
			if err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all}); err != nil {
				return fmt.Errorf("add route to %s: %w", destination, err)
			}
		}
		return nil
	})
	p.stage.do(func() {
		if err := netlink.SetNetNsIdByFd(int(s.ns.Fd()), id); err != nil {
			t.Errorf("give the namespace its id: %v", err)
		}
	})
	for _, a := range []netip.Addr{pod.v4, pod.v6} {
		e := Endpoint{Interface: p.stage.devices[device], PodMAC: pod.mac, HostMAC: pod.gateway, Namespace: id + 1}
		if err := p.d.Endpoints.Set(a, e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func socketAddress(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// open makes a socket; what it gives ends it at once, without a FIN.
func (s sockets) open(t testing.TB, prepare func(fd int) error) (closeIt func()) {
	t.Helper()
	var fd int
	s.do(t, func() (err error) {
		family := unix.AF_INET
		if s.family == 6 {
			family = unix.AF_INET6
		}
		if fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return err
		}
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return err
		}
		return prepare(fd)
	})
	closed := false
	closeIt = func() {
		if !closed {
			closed = true
			unix.Close(fd)
		}
	}
	t.Cleanup(closeIt)
	return closeIt
}

func (s sockets) listen(t testing.TB, own netip.AddrPort) (closeIt func()) {
	t.Helper()
	return s.open(t, func(fd int) error {
		if err := unix.Bind(fd, socketAddress(own)); err != nil {
			return err
		}
		return unix.Listen(fd, 1)
	})
}

// connected makes a connection that is established without a packet.
func (s sockets) connected(t testing.TB, own, other netip.AddrPort) (closeIt func()) {
	t.Helper()
	return s.open(t, func(fd int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR, 1); err != nil {
			return err
		}
		if err := unix.Bind(fd, socketAddress(own)); err != nil {
			return fmt.Errorf("bind: %w", err)
		}
		if err := unix.Connect(fd, socketAddress(other)); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		// -1 turns repairing off without a probe of the window (TCP_REPAIR_OFF_NO_WP).
		return unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR, -1)
	})
}

// accepted makes a connection that the pod accepts from another one's address, which the namespace has for it. Nobody listens in the end.
func (s sockets) accepted(t testing.TB, own, other netip.AddrPort) {
	t.Helper()
	s.do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		one, err := netlink.ParseAddr(netip.PrefixFrom(other.Addr(), other.Addr().BitLen()).String())
		if err != nil {
			return err
		}
		one.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(lo, one); err != nil {
			return fmt.Errorf("add address %s: %w", other.Addr(), err)
		}
		l, err := net.Listen("tcp", own.String())
		if err != nil {
			return err
		}
		defer l.Close()
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(other)}
		client, err := dialer.Dial("tcp", own.String())
		for begin := time.Now(); err != nil && time.Since(begin) < 10*time.Second; client, err = dialer.Dial("tcp", own.String()) {
			time.Sleep(time.Millisecond) // the kernel adds the route to an address of IPv6 later than the address
		}
		if err != nil {
			return err
		}
		t.Cleanup(func() { client.Close() })
		server, err := l.Accept()
		if err == nil {
			t.Cleanup(func() { server.Close() })
		}
		return err
	})
}

// datagrams makes a socket of UDP, at a port that others may have too; `other` that is valid is whom it is connected to.
func (s sockets) datagrams(t testing.TB, own, other netip.AddrPort) (closeIt func()) {
	t.Helper()
	shared := func(_, _ string, c syscall.RawConn) error {
		var failure error
		err := c.Control(func(fd uintptr) { failure = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(err, failure)
	}
	var closer io.Closer
	s.do(t, func() (err error) {
		if other.IsValid() {
			closer, err = (&net.Dialer{Control: shared, LocalAddr: net.UDPAddrFromAddrPort(own)}).Dial("udp", other.String())
		} else {
			closer, err = (&net.ListenConfig{Control: shared}).ListenPacket(t.Context(), "udp", own.String())
		}
		return err
	})
	t.Cleanup(func() { closer.Close() })
	return func() { closer.Close() }
}

// A session that was pushed out goes on where a socket of the receiver says that it has opened it. A server that a policy
// isolates for egress too gets no further by sockets of its own.
func TestPolicySocketProof(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		pod, peer := end{podA, 40000}.at(family), end{podB, 80}.at(family)
		s := p.newSockets(t, podA, "blpoda", family)
		from := wireBrings(segmentOf(fromWire(), peer, pod, tcpPSH|tcpACK))
		ack := wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN|tcpACK))
		syn := wireBrings(segmentOf(fromWire(), peer, pod, tcpSYN))
		back := podSends(segmentOf(fromPod(), pod, peer, tcpPSH|tcpACK))

		// The pod is a client.
		p.ingress(t, map[policy.Identity]policy.Ports{})
		p.forget(t)
		p.denies(t, "to an isolated client without a socket", from, noIngress)
		closeClient := s.connected(t, pod, peer)
		p.denies(t, "from another port of its server", wireBrings(segmentOf(fromWire(), end{podB, 81}.at(family), pod, tcpACK)), noIngress)
		p.denies(t, "a SYN into it", syn, noIngress)
		p.allows(t, "of its server", from)
		p.allows(t, "to its server", back)
		p.denies(t, "a SYN into its session", syn, noIngress)
		p.forget(t)
		p.allows(t, "SYN, ACK", ack)

		// What the client may not open any more does not go on because it has a socket.
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{})
		p.forget(t)
		p.denies(t, "to a client that may not open it", from, noEgress)
		p.denies(t, "of a client that may not open it", back, noEgress)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsTCP80}))
		p.forget(t)
		p.allows(t, "to a client that may open it", from)
		closeClient()
		p.forget(t)
		p.denies(t, "to a client that has closed it", from, noIngress)

		// The pod is a server: what it has accepted is judged as the SYN was.
		closeServer := s.listen(t, pod)
		s.connected(t, pod, peer)
		p.ingress(t, map[policy.Identity]policy.Ports{})
		p.forget(t)
		p.denies(t, "to a server that may not be reached any more", from, noIngress)
		p.denies(t, "of a server that may not be reached any more", back, noIngress)
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsEvery})
		p.forget(t)
		p.allows(t, "of a server", back)
		p.allows(t, "to it", from)
		if all := p.sessions(t); len(all) == 0 || all[len(all)-1].Source != peer {
			t.Errorf("sessions %+v: expected one that %s has opened", all, peer)
		}

		// It goes on to be one when it listens no more.
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idB: portsEvery}))
		accepted, client := end{podA, 8080}.at(family), end{podB, 40001}.at(family)
		s.accepted(t, accepted, client)
		p.forget(t)
		p.allows(t, "to a server that listens no more", wireBrings(segmentOf(fromWire(), client, accepted, tcpPSH|tcpACK)))
		p.ingress(t, map[policy.Identity]policy.Ports{})
		p.forget(t)
		p.denies(t, "to one that may not be reached any more", wireBrings(segmentOf(fromWire(), client, accepted, tcpPSH|tcpACK)), noIngress)

		// The attack: a pod that is isolated for egress makes itself a socket, and a server at its port.
		p.egress(t, map[policy.Identity]policy.Ports{})
		p.forget(t)
		p.denies(t, "of an attacker with a forged connection", back, noEgress)
		closeServer()
		p.denies(t, "of an attacker with a forged connection and no server", back, noEgress)
	})
}

// Within a node the sockets of the receiver say who has opened a connection, whichever end is isolated; what they say is judged by both.
func TestPolicySocketProofWithinNode(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		server, client := end{podA, 80}.at(family), end{podA2, 40000}.at(family)
		s := p.newSockets(t, podA2, "blpoda2", family)
		back := podSends(segmentOf(fromPod(), server, client, tcpPSH|tcpACK))
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rules, map[policy.Identity]policy.Ports{idA2: portsTCP80}))
		p.forget(t)
		p.denies(t, "of a server whose client has no socket", back, noEgress)
		s.connected(t, client, server)
		p.allows(t, "of a server whose client has one", back)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{})
		p.forget(t)
		p.denies(t, "to a client that may not open it", back, noIngress)
	})
}

// An ICMP error that quotes a packet of no known session proves nothing, but where a socket of the receiver has sent it.
func TestPolicySocketProofOfErrors(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	hop := member{v4: addr("172.30.0.77"), v6: addr("fd00:172:30::77")}
	eachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(4)
		if family == 6 {
			kind, code = 2, 0
		}
		pod, peer := end{podA, 40000}.at(family), end{podB, 80}.at(family)
		s := p.newSockets(t, podA, "blpoda", family)
		sent := segmentOf(eth(MAC{}, MAC{}), pod, peer, tcpACK)
		about := wireBrings(quoting(fromWire(), hop.addr(family), pod.Addr(), kind, code, 1400, sent, 500))
		p.ingress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.forget(t)
		p.denies(t, "an error about what nobody has sent", about, noIngress)
		s.connected(t, pod, peer)
		p.allows(t, "an error about a connection", about)
		mine := quoting(fromPod(), pod.Addr(), peer.Addr(), kind, code, 1400, segmentOf(eth(MAC{}, MAC{}), peer, pod, tcpACK), 500)
		p.egress(t, map[policy.Identity]policy.Ports{idB: portsTCP80})
		p.forget(t)
		p.denies(t, "an error of an isolated pod, about what it may not have got", podSends(mine), noEgress)
	})
}

// A datagram is an answer, also in a session that nobody knows, if a socket of the receiver is connected to who sends it. What the receiver may not
// open gets nowhere by that.
func TestPolicySocketProofOfDatagrams(t *testing.T) {
	p := newPolicyRig(t, Config{EBPFRouting: true})
	eachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		pod, peer := end{podA, 40000}.at(family), end{podB, 53}.at(family)
		s := p.newSockets(t, podA, "blpoda", family)
		from := wireBrings(datagram(fromWire(), peer, pod))
		about := wireBrings(quoting(fromWire(), peer.Addr(), pod.Addr(), kind, code, 0, datagram(eth(MAC{}, MAC{}), pod, peer), 500))
		p.ingress(t, map[policy.Identity]policy.Ports{})
		p.forget(t)
		p.denies(t, "to a pod without a socket", from, noIngress)
		p.denies(t, "an error to a pod without a socket", about, noIngress)
		closeIt := s.datagrams(t, pod, netip.AddrPort{})
		p.denies(t, "to a socket that is connected to nobody", from, noIngress)
		p.denies(t, "an error to such a socket", about, noIngress)
		closeIt()
		closeIt = s.datagrams(t, pod, peer)
		p.allows(t, "an error to a socket that is connected", about)
		p.denies(t, "from another port", wireBrings(datagram(fromWire(), end{podB, 54}.at(family), pod)), noIngress)
		p.denies(t, "to another port", wireBrings(datagram(fromWire(), peer, end{podA, 40001}.at(family))), noIngress)
		p.denies(t, "from somebody else", wireBrings(datagram(fromWire(), end{podC, 53}.at(family), pod)), noIngress)
		p.denies(t, "of another protocol", wireBrings(segmentOf(fromWire(), peer, pod, tcpACK)), noIngress)
		closeServer := s.datagrams(t, pod, netip.AddrPort{})
		p.denies(t, "to a server that has connected a socket to its client", from, noIngress)
		closeServer()
		p.allows(t, "from whom it is connected to", from)
		if all := p.sessions(t); len(all) != 1 || all[0].Source != pod {
			t.Errorf("sessions %+v: expected one that %s has opened", all, pod)
		}
		p.allows(t, "back", podSends(datagram(fromPod(), pod, peer)))

		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, map[policy.Peer]policy.Ports{})
		p.denies(t, "in a session that the pod may not open any more", from, noEgress)
		p.forget(t)
		p.denies(t, "to a pod that may not ask", from, noIngress)
		p.govern(t, podA, policy.Sets{Ingress: rules, Egress: rulesOf2}, inSet(rulesOf2, map[policy.Identity]policy.Ports{idB: portsOf53}))
		p.forget(t)
		p.allows(t, "to a pod that may ask", from)
		closeIt()
		p.forget(t)
		p.denies(t, "to a pod whose socket is closed", from, noIngress)
	})
}
