package policy_test

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

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/policy"
)

// sockets are those of a pod, in its own network namespace: a listening server, and connections that were established
// without packets (TCP_REPAIR), as an attacker can create them.
type sockets struct {
	netlab.Netns
	family int
}

// namespaceIDs counts the IDs of pods' namespaces: a used one is free only some time after its namespace is deleted.
var namespaceIDs atomic.Int32

// newPodSockets gives a pod a namespace with its addresses, which the datapath finds by its ID.
func newPodSockets(p *harness.Policy, t testing.TB, pod fixtures.Member, device string, family int) sockets {
	t.Helper()
	id := 1000 + int(namespaceIDs.Add(1)) // above the kernel's ids
	s := sockets{netlab.NewNetns(t), family}
	s.Do(t, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range []netip.Addr{pod.V4, pod.V6} {
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
	p.Netns.Do(func() {
		if err := netlink.SetNetNsIdByFd(int(s.Ns.Fd()), id); err != nil {
			t.Errorf("set the ID of the namespace: %v", err)
		}
	})
	for _, a := range []netip.Addr{pod.V4, pod.V6} {
		e := fwd.Endpoint{Interface: p.Netns.Devices[device], PodMAC: pod.Mac, HostMAC: pod.Gateway, Namespace: id + 1}
		if err := p.D.Endpoints.Set(a, e); err != nil {
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

// open makes a socket and returns a function that closes it at once, without a FIN.
func (s sockets) open(t testing.TB, prepare func(fd int) error) (closeIt func()) {
	t.Helper()
	var fd int
	s.Do(t, func() (err error) {
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
		// -1 ends repair mode without a window probe (TCP_REPAIR_OFF_NO_WP).
		return unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR, -1)
	})
}

// accepted makes a connection that the pod accepts from another address, which the namespace has for it. The listener
// is closed in the end.
func (s sockets) accepted(t testing.TB, own, other netip.AddrPort) {
	t.Helper()
	s.Do(t, func() error {
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
			time.Sleep(time.Millisecond) // the kernel adds the route to an IPv6 address later than the address
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

// datagrams makes a UDP socket at a shared port, connected to `other` if that is valid.
func (s sockets) datagrams(t testing.TB, own, other netip.AddrPort) (closeIt func()) {
	t.Helper()
	shared := func(_, _ string, c syscall.RawConn) error {
		var failure error
		err := c.Control(func(fd uintptr) { failure = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(err, failure)
	}
	var closer io.Closer
	s.Do(t, func() (err error) {
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

// A connection whose entry was evicted continues if a socket of the receiver says that it is the initiator. A server
// that is isolated for egress gains nothing by sockets of its own.
func TestPolicySocketProof(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		pod, peer := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 80}.At(family)
		s := newPodSockets(p, t, fixtures.PodA, "blpoda", family)
		from := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpPSH|fixtures.TcpACK))
		ack := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpSYN|fixtures.TcpACK))
		syn := harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpSYN))
		back := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), pod, peer, fixtures.TcpPSH|fixtures.TcpACK))

		p.Ingress(t, map[policy.Identity]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, "to an isolated client without a socket", from, harness.NoIngress)
		closeClient := s.connected(t, pod, peer)
		p.Denies(t, "from another port of its server", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 81}.At(family), pod, fixtures.TcpACK)), harness.NoIngress)
		p.Denies(t, "a SYN into it", syn, harness.NoIngress)
		p.Allows(t, "of its server", from)
		p.Allows(t, "to its server", back)
		p.Denies(t, "a SYN into its connection", syn, harness.NoIngress)
		p.ClearVerdicts(t)
		p.Allows(t, "SYN, ACK", ack)

		// A connection that the client may not initiate any more does not continue because of a socket.
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, "to a client that may not open it", from, harness.NoEgress)
		p.Denies(t, "of a client that may not open it", back, harness.NoEgress)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80}))
		p.ClearVerdicts(t)
		p.Allows(t, "to a client that may open it", from)
		closeClient()
		p.ClearVerdicts(t)
		p.Denies(t, "to a client that has closed it", from, harness.NoIngress)

		// The pod is a server: an accepted connection is evaluated as its SYN was.
		closeServer := s.listen(t, pod)
		s.connected(t, pod, peer)
		p.Ingress(t, map[policy.Identity]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, "to a server that may not be reached any more", from, harness.NoIngress)
		p.Denies(t, "of a server that may not be reached any more", back, harness.NoIngress)
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery})
		p.ClearVerdicts(t)
		p.Allows(t, "of a server", back)
		p.Allows(t, "to it", from)
		if all := p.Entries(t); len(all) == 0 || all[len(all)-1].Source != peer {
			t.Errorf("entries %+v: expected one that %s initiated", all, peer)
		}

		// The socket still says so when the server has stopped listening.
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsEvery}))
		accepted, client := harness.End{Member: fixtures.PodA, Port: 8080}.At(family), harness.End{Member: fixtures.PodB, Port: 40001}.At(family)
		s.accepted(t, accepted, client)
		p.ClearVerdicts(t)
		p.Allows(t, "to a server that listens no more", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, accepted, fixtures.TcpPSH|fixtures.TcpACK)))
		p.Ingress(t, map[policy.Identity]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, "to one that may not be reached any more", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), client, accepted, fixtures.TcpPSH|fixtures.TcpACK)), harness.NoIngress)

		// The attack: a pod that is isolated for egress makes a socket, and a server at its port.
		p.Egress(t, map[policy.Identity]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, "of an attacker with a forged connection", back, harness.NoEgress)
		closeServer()
		p.Denies(t, "of an attacker with a forged connection and no server", back, harness.NoEgress)
	})
}

// Within a node the receiver's sockets say which end is the initiator, whichever end is isolated; both ends are
// evaluated by that.
func TestPolicySocketProofWithinNode(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		server, client := harness.End{Member: fixtures.PodA, Port: 80}.At(family), harness.End{Member: fixtures.PodA2, Port: 40000}.At(family)
		s := newPodSockets(p, t, fixtures.PodA2, "blpoda2", family)
		back := harness.PodSends(harness.SegmentOf(fixtures.FromPod(), server, client, fixtures.TcpPSH|fixtures.TcpACK))
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.Rules, map[policy.Identity]policy.Ports{harness.IdA2: harness.PortsTCP80}))
		p.ClearVerdicts(t)
		p.Denies(t, "of a server whose client has no socket", back, harness.NoEgress)
		s.connected(t, client, server)
		p.Allows(t, "of a server whose client has one", back)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, "to a client that may not open it", back, harness.NoIngress)
	})
}

// An ICMP error that quotes a packet without a conntrack entry is allowed only if a socket of the receiver has sent
// it.
func TestPolicySocketProofOfErrors(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	hop := fixtures.Member{V4: fixtures.Addr("172.30.0.77"), V6: fixtures.Addr("fd00:172:30::77")}
	harness.EachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(4)
		if family == 6 {
			kind, code = 2, 0
		}
		pod, peer := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 80}.At(family)
		s := newPodSockets(p, t, fixtures.PodA, "blpoda", family)
		sent := harness.SegmentOf(fixtures.Eth(fwd.MAC{}, fwd.MAC{}), pod, peer, fixtures.TcpACK)
		about := harness.WireBrings(fixtures.Quoting(fixtures.FromWire(), hop.Addr(family), pod.Addr(), kind, code, 1400, sent, 500))
		p.Ingress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.ClearVerdicts(t)
		p.Denies(t, "an error about an unknown packet", about, harness.NoIngress)
		s.connected(t, pod, peer)
		p.Allows(t, "an error about a connection", about)
		mine := fixtures.Quoting(fixtures.FromPod(), pod.Addr(), peer.Addr(), kind, code, 1400, harness.SegmentOf(fixtures.Eth(fwd.MAC{}, fwd.MAC{}), peer, pod, fixtures.TcpACK), 500)
		p.Egress(t, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsTCP80})
		p.ClearVerdicts(t)
		p.Denies(t, "an error of an isolated pod, about what it may not have got", harness.PodSends(mine), harness.NoEgress)
	})
}

// A datagram without a conntrack entry is a reply if a socket of the receiver is connected to the sender. That helps
// only where the receiver may initiate.
func TestPolicySocketProofOfDatagrams(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		kind, code := byte(3), byte(3)
		if family == 6 {
			kind, code = 1, 4
		}
		pod, peer := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.End{Member: fixtures.PodB, Port: 53}.At(family)
		s := newPodSockets(p, t, fixtures.PodA, "blpoda", family)
		from := harness.WireBrings(harness.Datagram(fixtures.FromWire(), peer, pod))
		about := harness.WireBrings(fixtures.Quoting(fixtures.FromWire(), peer.Addr(), pod.Addr(), kind, code, 0, harness.Datagram(fixtures.Eth(fwd.MAC{}, fwd.MAC{}), pod, peer), 500))
		p.Ingress(t, map[policy.Identity]policy.Ports{})
		p.ClearVerdicts(t)
		p.Denies(t, "to a pod without a socket", from, harness.NoIngress)
		p.Denies(t, "an error to a pod without a socket", about, harness.NoIngress)
		closeIt := s.datagrams(t, pod, netip.AddrPort{})
		p.Denies(t, "to an unconnected socket", from, harness.NoIngress)
		p.Denies(t, "an error to such a socket", about, harness.NoIngress)
		closeIt()
		closeIt = s.datagrams(t, pod, peer)
		p.Allows(t, "an error to a socket that is connected", about)
		p.Denies(t, "from another port", harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodB, Port: 54}.At(family), pod)), harness.NoIngress)
		p.Denies(t, "to another port", harness.WireBrings(harness.Datagram(fixtures.FromWire(), peer, harness.End{Member: fixtures.PodA, Port: 40001}.At(family))), harness.NoIngress)
		p.Denies(t, "from another peer", harness.WireBrings(harness.Datagram(fixtures.FromWire(), harness.End{Member: fixtures.PodC, Port: 53}.At(family), pod)), harness.NoIngress)
		p.Denies(t, "of another protocol", harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), peer, pod, fixtures.TcpACK)), harness.NoIngress)
		closeServer := s.datagrams(t, pod, netip.AddrPort{})
		p.Denies(t, "to a server that has connected a socket to its client", from, harness.NoIngress)
		closeServer()
		p.Allows(t, "from the connected peer", from)
		if all := p.Entries(t); len(all) != 1 || all[0].Source != pod {
			t.Errorf("entries %+v: expected one that %s initiated", all, pod)
		}
		p.Allows(t, "back", harness.PodSends(harness.Datagram(fixtures.FromPod(), pod, peer)))

		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, map[policy.Peer]policy.Ports{})
		p.Denies(t, "in a connection that the pod may not initiate any more", from, harness.NoEgress)
		p.ClearVerdicts(t)
		p.Denies(t, "to a pod that may not ask", from, harness.NoIngress)
		p.Govern(t, fixtures.PodA, policy.Sets{Ingress: harness.Rules, Egress: harness.RulesOf2}, harness.InSet(harness.RulesOf2, map[policy.Identity]policy.Ports{harness.IdB: harness.PortsOf53}))
		p.ClearVerdicts(t)
		p.Allows(t, "to a pod that may ask", from)
		closeIt()
		p.ClearVerdicts(t)
		p.Denies(t, "to a pod whose socket is closed", from, harness.NoIngress)
	})
}

// The pod's packets to a Service are translated, and so are the replies: what comes from the Service's own address is a
// reply to no socket, and starts no connection. The reply of the backend still is one when its entry was evicted.
func TestPolicySocketProofOfServices(t *testing.T) {
	p := harness.NewPolicy(t, config.Datapath{EBPFRouting: true, Services: true})
	harness.EachFamily(t, func(t *testing.T, family int) {
		pod, frontend, backend := harness.End{Member: fixtures.PodA, Port: 40000}.At(family), harness.FrontendOfPods.At(family), harness.End{Member: fixtures.PodB, Port: 8080}.At(family)
		other := netip.AddrPortFrom(frontend.Addr(), frontend.Port()+1)
		s := newPodSockets(p, t, fixtures.PodA, "blpoda", family)
		for _, at := range []netip.AddrPort{frontend, other} {
			s.connected(t, pod, at)
			s.datagrams(t, pod, at)
		}
		segment := func(from netip.AddrPort) harness.Run {
			return harness.WireBrings(harness.SegmentOf(fixtures.FromWire(), from, pod, fixtures.TcpPSH|fixtures.TcpACK))
		}
		datagram := func(from netip.AddrPort) harness.Run {
			return harness.WireBrings(harness.Datagram(fixtures.FromWire(), from, pod))
		}
		p.Serve(t, frontend, 0, backend)
		p.Ingress(t, map[policy.Identity]policy.Ports{policy.IdentityUnknown: harness.PortsEvery})
		p.ClearVerdicts(t)
		p.Allows(t, "a segment, which the policy allows", segment(frontend))
		p.Ingress(t, map[policy.Identity]policy.Ports{})
		p.ClearVerdicts(t)
		p.Allows(t, "a segment of another port", segment(other))
		p.Allows(t, "a datagram of another port", datagram(other))
		p.Denies(t, "a segment", segment(frontend), harness.NoIngress)
		p.Denies(t, "a datagram", datagram(frontend), harness.NoIngress)
		p.Allows(t, "the request", harness.PodSends(harness.SegmentOf(fixtures.FromPod(), pod, frontend, fixtures.TcpSYN)))
		p.Allows(t, "the backend's reply", segment(backend))
		p.ClearVerdicts(t)
		p.Allows(t, "the backend's reply, without an entry", segment(backend))
		p.Denies(t, "a segment into the connection", segment(frontend), harness.NoIngress)
	})
}
