package fwd_test

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
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
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
	if err := unix.Bind(fd, netlab.Sockaddr(at)); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("bind to %s: %w", at, err)
	}
	return fd, nil
}

// serveSCTP echoes every association, and reports the initiator of each.
func serveSCTP(p netlab.Netns, tb testing.TB, a netip.Addr) <-chan netip.AddrPort {
	tb.Helper()
	seen := make(chan netip.AddrPort, 100)
	p.Do(tb, func() error {
		fd, err := socketSCTP(netip.AddrPortFrom(a, netlab.EchoPort), netlab.Patience)
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
		go netlab.AcceptAll(l, func(c net.Conn) {
			seen <- c.RemoteAddr().(*net.TCPAddr).AddrPort()
			go netlab.Echo(c, struct{ io.Reader }{c}) // read and written, not spliced as TCP is
		})
		return nil
	})
	return seen
}

// dialSCTP opens an association from an address of the place.
func dialSCTP(p netlab.Netns, from netip.Addr, to netip.AddrPort, limit time.Duration) (c net.Conn, err error) {
	err = p.Ns.Do(func(ns.NetNS) error {
		fd, err := socketSCTP(netip.AddrPortFrom(from, 0), limit)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "client")
		defer f.Close()
		if err := netlab.Uninterrupted(func() error { return unix.Connect(fd, netlab.Sockaddr(to)) }); err != nil {
			return fmt.Errorf("connect to %s: %w", to, err)
		}
		c, err = net.FileConn(f)
		return err
	})
	return c, err
}

// echoSCTP sends messages of so many bytes through an association, one after the other, and then many at once.
func echoSCTP(p netlab.Netns, tb testing.TB, from netip.Addr, to netip.AddrPort) error {
	tb.Helper()
	c, err := dialSCTP(p, from, to, netlab.Patience)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, size := range []int{1, 2, 3, 100, 1000, 1400, 5000} {
		if err := netlab.EchoTCP(c, size); err != nil {
			return fmt.Errorf("messages of %d bytes: %w", size, err)
		}
	}
	for i := range 20 {
		if err := netlab.EchoTCP(c, 20000+i); err != nil {
			return fmt.Errorf("many messages: %w", err)
		}
	}
	return nil
}

// serveSCTPPort adds an SCTP Service port with a ClusterIP and a NodePort, for pods and external clients, with a pod
// as backend.
func serveSCTPPort(n *netlab.Node, tb testing.TB, clusterIP netip.Addr, backends ...netip.Addr) {
	tb.Helper()
	b := service.Backends{Maglev: len(backends) > 0}
	for _, a := range backends {
		b.Addresses = append(b.Addresses, netip.AddrPortFrom(a, netlab.EchoPort))
	}
	own := n.V4
	if clusterIP.Is6() {
		own = n.V6
	}
	p := service.Port{Name: service.PortName{Service: cluster.Key{Namespace: "default", Name: "sctp-" + clusterIP.String()}, Number: fixtures.ServicePort, Protocol: cluster.SCTP}}
	for _, frontend := range []netip.Addr{clusterIP, own} {
		p.Entries = append(p.Entries, service.Entry{
			Frontend: service.Frontend{Address: frontend, Port: fixtures.ServicePort, Protocol: cluster.SCTP},
			Kind:     service.KindNodePort, Internal: b, External: b, DSR: n.Cfg.DSR && frontend == own,
		})
	}
	if err := n.D.Services.Apply([]service.Port{p}, nil); err != nil {
		tb.Fatal(err)
	}
}

// clusterIPOf is an unassigned address.
func clusterIPOf(family int) netip.Addr {
	if family == 4 {
		return fixtures.Addr("10.96.0.9")
	}
	return fixtures.Addr("fd00:96::9")
}

// SCTP sockets reach Services and external hosts: with partial and complete checksums; with tc alone, behind XDP on
// the uplink and with DSR, through tunnels, and with kernel routing.
func TestSCTPSockets(t *testing.T) {
	needsSCTP(t)
	dsr := fixtures.ServicesConfig(config.AccelerationXDP)
	dsr.DSR = true
	for name, c := range map[string]struct {
		netlab.Options
		finished bool
	}{
		"tc":             {Options: netlab.Options{Cfg: fixtures.ServicesConfig(config.AccelerationTC)}},
		"XDP and DSR":    {Options: netlab.Options{Cfg: dsr}, finished: true},
		"tunnel":         {Options: netlab.Options{Cfg: fixtures.ServicesConfig(config.AccelerationTC), Tunnel: true}},
		"kernel routing": {Options: netlab.Options{Cfg: config.Datapath{Masquerade: true, Services: true, Acceleration: config.AccelerationTC}}, finished: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := netlab.NewNetwork(t, c.Options)
			if c.finished {
				for _, p := range []netlab.Netns{*n.External, n.A.Netns, n.B.Netns, n.A1.Netns, n.A2.Netns, n.B1.Netns} {
					p.Do(t, func() error { return testenv.FinishChecksums("eth0") })
				}
			}
			if c.Cfg.Acceleration == config.AccelerationXDP {
				n.Accelerate(t, n.A)
			}
			for _, family := range fixtures.Families {
				reachesServicesBySCTP(n, t, family)
				reachesExternalBySCTP(n, t, family)
				n.DropsNothing(t)
				isRejectedBySCTP(n, t, family)
			}
		})
	}
}

// reachesServicesBySCTP opens associations to a Service with another port than its backends: from pods and external
// clients, with local and remote backends and the client itself.
func reachesServicesBySCTP(n *netlab.Network, t *testing.T, family int) {
	t.Helper()
	seen := map[*netlab.Pod]<-chan netip.AddrPort{}
	for _, p := range []*netlab.Pod{n.A1, n.A2, n.B1} {
		seen[p] = serveSCTP(p.Netns, t, p.Addr(family))
	}
	clusterIP, elsewhere := clusterIPOf(family), n.A.Addr(family)
	if n.A.Cfg.DSR {
		elsewhere = fixtures.External.Addr(family)
	}
	for _, c := range []struct {
		name     string
		backend  *netlab.Pod
		from     netlab.Netns
		at       netip.Addr
		frontend netip.Addr
		seen     netip.Addr // the client's address at the backend; none: not checked
	}{
		{"a pod, backend on another node", n.B1, n.A1.Netns, n.A1.Addr(family), clusterIP, n.A1.Addr(family)},
		{"a pod, backend here", n.A2, n.A1.Netns, n.A1.Addr(family), clusterIP, n.A1.Addr(family)},
		{"a pod to itself", n.A1, n.A1.Netns, n.A1.Addr(family), clusterIP, netip.Addr{}},
		{"a pod to its node", n.B1, n.A1.Netns, n.A1.Addr(family), n.A.Addr(family), n.A1.Addr(family)},
		{"an external host, backend on another node", n.B1, *n.External, fixtures.External.Addr(family), n.A.Addr(family), elsewhere},
		{"an external host, backend here", n.A1, *n.External, fixtures.External.Addr(family), n.A.Addr(family), fixtures.External.Addr(family)},
	} {
		for _, node := range []*netlab.Node{n.A, n.B} {
			serveSCTPPort(node, t, clusterIP, c.backend.Addr(family))
		}
		if err := echoSCTP(c.from, t, c.at, netip.AddrPortFrom(c.frontend, fixtures.ServicePort)); err != nil {
			t.Errorf("IPv%d from %s: %v (%v, %v)", family, c.name, err, n.A.Dropped(t), n.B.Dropped(t))
			continue
		}
		if from := <-seen[c.backend]; c.seen.IsValid() && from.Addr().Unmap() != c.seen {
			t.Errorf("IPv%d from %s: the backend sees %s, not %s", family, c.name, from, c.seen)
		}
	}
}

// reachesExternalBySCTP opens an association from a pod to an external host, which sees the node.
func reachesExternalBySCTP(n *netlab.Network, t *testing.T, family int) {
	t.Helper()
	seen := serveSCTP(*n.External, t, fixtures.External.Addr(family))
	if err := echoSCTP(n.A1.Netns, t, n.A1.Addr(family), netip.AddrPortFrom(fixtures.External.Addr(family), netlab.EchoPort)); err != nil {
		t.Errorf("IPv%d: %v (%v)", family, err, n.A.Dropped(t))
		return
	}
	if from := <-seen; from.Addr().Unmap() != n.A.Addr(family) {
		t.Errorf("IPv%d: the external host sees %s, not the node", family, from)
	}
}

// isRejectedBySCTP connects to a Service without endpoints and expects a port unreachable error with a valid checksum.
func isRejectedBySCTP(n *netlab.Network, t *testing.T, family int) {
	t.Helper()
	serveSCTPPort(n.A, t, clusterIPOf(family))
	kind, code := byte(3), byte(3)
	if family == 6 {
		kind, code = 1, 4
	}
	for name, from := range map[string]struct {
		netlab.Netns
		at, frontend netip.Addr
	}{
		"a pod":            {n.A1.Netns, n.A1.Addr(family), clusterIPOf(family)},
		"an external host": {*n.External, fixtures.External.Addr(family), n.A.Addr(family)},
	} {
		errs := from.ListenICMP(t, from.at)
		connected := make(chan struct{})
		go func() {
			defer close(connected)
			if c, err := dialSCTP(from.Netns, from.at, netip.AddrPortFrom(from.frontend, fixtures.ServicePort), time.Second); err == nil {
				c.Close()
				t.Errorf("IPv%d from %s: connected", family, name)
			}
		}()
		if _, err := netlab.AwaitICMP(errs, func(k, c byte, _ []byte) bool { return k == kind && c == code }); err != nil {
			t.Errorf("IPv%d from %s: %v", family, name, err)
		}
		<-connected
	}
}
