package datapath

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// needsSCTP skips a test where the kernel was built without SCTP. Where it has the module, as in the emulated machines, that has to work.
func needsSCTP(tb testing.TB) {
	tb.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err == nil {
		unix.Close(fd)
		return
	}
	if modules, _ := filepath.Glob("/lib/modules/*/kernel/net/sctp/sctp.ko*"); len(modules) > 0 {
		tb.Fatalf("%s is there: %v", modules[0], err)
	}
	testenv.Missing(tb, "not on this kernel: SCTP")
}

// socketSCTP gives a one-to-one socket (RFC 6458, 4) bound to an address alone, so that its association knows no other: it would
// otherwise offer all that its host has. Connecting may take so long.
func socketSCTP(at netip.AddrPort, connecting time.Duration) (int, error) {
	family := unix.AF_INET
	if at.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return 0, fmt.Errorf("make socket: %w", err)
	}
	limit := unix.NsecToTimeval(connecting.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("limit connecting: %w", err)
	}
	if err := unix.Bind(fd, sockaddr(at)); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("bind to %s: %w", at, err)
	}
	return fd, nil
}

// serveSCTP echoes every association, and tells who opened each.
func (p place) serveSCTP(tb testing.TB, a netip.Addr) <-chan netip.AddrPort {
	tb.Helper()
	seen := make(chan netip.AddrPort, 100)
	p.do(tb, func() error {
		fd, err := socketSCTP(netip.AddrPortFrom(a, echoPort), patience)
		if err != nil {
			return err
		}
		if err := unix.Listen(fd, 16); err != nil {
			unix.Close(fd)
			return fmt.Errorf("listen: %w", err)
		}
		f := os.NewFile(uintptr(fd), "listener")
		defer f.Close()
		l, err := net.FileListener(f)
		if err != nil {
			return err
		}
		tb.Cleanup(func() { l.Close() })
		go acceptAll(l, func(c net.Conn) {
			seen <- c.RemoteAddr().(*net.TCPAddr).AddrPort()
			go echo(c, struct{ io.Reader }{c}) // read and written, not spliced as TCP is
		})
		return nil
	})
	return seen
}

// dialSCTP opens an association from an address of the place.
func (p place) dialSCTP(from netip.Addr, to netip.AddrPort, limit time.Duration) (c net.Conn, err error) {
	err = p.ns.Do(func(ns.NetNS) error {
		fd, err := socketSCTP(netip.AddrPortFrom(from, 0), limit)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "client")
		defer f.Close()
		if err := uninterrupted(func() error { return unix.Connect(fd, sockaddr(to)) }); err != nil {
			return fmt.Errorf("connect to %s: %w", to, err)
		}
		c, err = net.FileConn(f)
		return err
	})
	return c, err
}

// echoSCTP sends messages of so many bytes through an association, one after the other, and then many at once.
func (p place) echoSCTP(tb testing.TB, from netip.Addr, to netip.AddrPort) error {
	tb.Helper()
	c, err := p.dialSCTP(from, to, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, size := range []int{1, 2, 3, 100, 1000, 1400, 5000} {
		if err := echoTCP(c, size); err != nil {
			return fmt.Errorf("messages of %d bytes: %w", size, err)
		}
	}
	for i := range 20 {
		if err := echoTCP(c, 20000+i); err != nil {
			return fmt.Errorf("many messages: %w", err)
		}
	}
	return nil
}

// serveSCTPPort gives a node a Service's port of SCTP: for its pods and for the world, at an address and at its own, with a pod as the backend.
func (n *node) serveSCTPPort(tb testing.TB, clusterIP netip.Addr, backends ...netip.Addr) {
	tb.Helper()
	b := service.Backends{Maglev: len(backends) > 0}
	for _, a := range backends {
		b.Addresses = append(b.Addresses, netip.AddrPortFrom(a, echoPort))
	}
	own := n.v4
	if clusterIP.Is6() {
		own = n.v6
	}
	p := service.Port{Name: service.PortName{Service: cluster.Key{Namespace: "default", Name: "sctp-" + clusterIP.String()}, Number: worldPort, Protocol: cluster.SCTP}}
	for _, frontend := range []netip.Addr{clusterIP, own} {
		p.Entries = append(p.Entries, service.Entry{
			Frontend: service.Frontend{Address: frontend, Port: worldPort, Protocol: cluster.SCTP},
			Kind:     service.KindNodePort, Inside: b, Outside: b, DSR: n.cfg.DSR && frontend == own,
		})
	}
	if err := n.d.Services.Apply([]service.Port{p}, nil); err != nil {
		tb.Fatal(err)
	}
}

// clusterIPOf is an address that nobody has.
func clusterIPOf(family int) netip.Addr {
	if family == 4 {
		return addr("10.96.0.9")
	}
	return addr("fd00:96::9")
}

// Sockets of SCTP have Services and the world: with checksums that devices promise to finish, and with finished ones; by tc alone, behind XDP
// on the uplink and with DSR, through tunnels, and where the stack forwards.
func TestSCTPSockets(t *testing.T) {
	needsSCTP(t)
	dsr := servicesConfig(AccelerationXDP)
	dsr.DSR = true
	for name, c := range map[string]struct {
		options
		finished bool
	}{
		"tc":             {options: options{cfg: servicesConfig(AccelerationTC)}},
		"XDP and DSR":    {options: options{cfg: dsr}, finished: true},
		"tunnel":         {options: options{cfg: servicesConfig(AccelerationTC), tunnel: true}},
		"kernel routing": {options: options{cfg: Config{Masquerade: true, Services: true, Acceleration: AccelerationTC}}, finished: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, c.options)
			if c.finished {
				for _, p := range []place{*n.world, n.a.place, n.b.place, n.a1.place, n.a2.place, n.b1.place} {
					p.do(t, func() error { return testenv.FinishChecksums("eth0") })
				}
			}
			if c.cfg.Acceleration == AccelerationXDP {
				n.accelerate(t, n.a)
			}
			for _, family := range families {
				n.reachesServicesBySCTP(t, family)
				n.reachesWorldBySCTP(t, family)
				n.dropsNothing(t)
				n.isRefusedBySCTP(t, family)
			}
		})
	}
}

// reachesServicesBySCTP opens associations to a Service whose port is not that of its backends: from pods and from the world, with backends
// here, on another node, and the client itself.
func (n *network) reachesServicesBySCTP(t *testing.T, family int) {
	t.Helper()
	seen := map[*pod]<-chan netip.AddrPort{}
	for _, p := range []*pod{n.a1, n.a2, n.b1} {
		seen[p] = p.serveSCTP(t, p.addr(family))
	}
	clusterIP, elsewhere := clusterIPOf(family), n.a.addr(family)
	if n.a.cfg.DSR {
		elsewhere = world.addr(family)
	}
	for _, c := range []struct {
		name     string
		backend  *pod
		from     place
		at       netip.Addr
		frontend netip.Addr
		seen     netip.Addr // as the backend knows the client; none: not asked
	}{
		{"a pod, backend on another node", n.b1, n.a1.place, n.a1.addr(family), clusterIP, n.a1.addr(family)},
		{"a pod, backend here", n.a2, n.a1.place, n.a1.addr(family), clusterIP, n.a1.addr(family)},
		{"a pod to itself", n.a1, n.a1.place, n.a1.addr(family), clusterIP, netip.Addr{}},
		{"a pod to its node", n.b1, n.a1.place, n.a1.addr(family), n.a.addr(family), n.a1.addr(family)},
		{"the world, backend on another node", n.b1, *n.world, world.addr(family), n.a.addr(family), elsewhere},
		{"the world, backend here", n.a1, *n.world, world.addr(family), n.a.addr(family), world.addr(family)},
	} {
		for _, node := range []*node{n.a, n.b} {
			node.serveSCTPPort(t, clusterIP, c.backend.addr(family))
		}
		if err := c.from.echoSCTP(t, c.at, netip.AddrPortFrom(c.frontend, worldPort)); err != nil {
			t.Errorf("IPv%d from %s: %v (%v, %v)", family, c.name, err, n.a.dropped(t), n.b.dropped(t))
			continue
		}
		if from := <-seen[c.backend]; c.seen.IsValid() && from.Addr().Unmap() != c.seen {
			t.Errorf("IPv%d from %s: the backend sees %s, not %s", family, c.name, from, c.seen)
		}
	}
}

// reachesWorldBySCTP opens an association from a pod to the world, which sees the node.
func (n *network) reachesWorldBySCTP(t *testing.T, family int) {
	t.Helper()
	seen := n.world.serveSCTP(t, world.addr(family))
	if err := n.a1.echoSCTP(t, n.a1.addr(family), netip.AddrPortFrom(world.addr(family), echoPort)); err != nil {
		t.Errorf("IPv%d: %v (%v)", family, err, n.a.dropped(t))
		return
	}
	if from := <-seen; from.Addr().Unmap() != n.a.addr(family) {
		t.Errorf("IPv%d: the world sees %s, not the node", family, from)
	}
}

// isRefusedBySCTP asks a Service without endpoints, and is told that the port is unreachable: by an ICMP error with a right checksum.
func (n *network) isRefusedBySCTP(t *testing.T, family int) {
	t.Helper()
	n.a.serveSCTPPort(t, clusterIPOf(family))
	kind, code := byte(3), byte(3)
	if family == 6 {
		kind, code = 1, 4
	}
	for name, from := range map[string]struct {
		place
		at, frontend netip.Addr
	}{
		"a pod":     {n.a1.place, n.a1.addr(family), clusterIPOf(family)},
		"the world": {*n.world, world.addr(family), n.a.addr(family)},
	} {
		errs := from.listenICMP(t, from.at)
		connected := make(chan struct{})
		go func() {
			defer close(connected)
			if c, err := from.dialSCTP(from.at, netip.AddrPortFrom(from.frontend, worldPort), time.Second); err == nil {
				c.Close()
				t.Errorf("IPv%d from %s: connected", family, name)
			}
		}()
		if _, err := awaitICMP(errs, func(k, c byte, _ []byte) bool { return k == kind && c == code }); err != nil {
			t.Errorf("IPv%d from %s: %v", family, name, err)
		}
		<-connected
	}
}
