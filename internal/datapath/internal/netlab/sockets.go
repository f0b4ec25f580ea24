package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/device/sock"
	"github.com/beeline-cni/beeline/internal/service"
)

// Sockets is a datapath at a cgroup of its own, and a network namespace in which backends listen. No packet goes to an
// address of a Service: the namespace has no route to one.
type Sockets struct {
	Netns
	Cfg    config.Datapath
	Cgroup string
	D      *harness.Opened
}

// Backends and Services of the socket tests.
var (
	Backends4 = []netip.Addr{fixtures.Addr("10.1.0.1"), fixtures.Addr("10.1.0.2"), fixtures.Addr("10.1.0.3")}
	Backends6 = []netip.Addr{fixtures.Addr("fd00:1::1"), fixtures.Addr("fd00:1::2"), fixtures.Addr("fd00:1::3")}
	Web4      = netip.MustParseAddrPort("10.96.0.10:80")
	Web6      = netip.MustParseAddrPort("[fd00:96::10]:80")
	Dns4      = netip.MustParseAddrPort("10.96.0.53:53")
)

const BackendPort = 8080

// NewSockets begins without Services. `node` says that the namespace is the node's own one.
func NewSockets(tb testing.TB, node bool) *Sockets {
	tb.Helper()
	r := &Sockets{Netns: NewNetns(tb), Cgroup: NewThreadedCgroup(tb)}
	r.Cfg = config.Datapath{Root: fixtures.Bpffs(tb), EBPFRouting: true, Services: true, HostNetns: 1, Cgroup: r.Cgroup}
	r.Do(tb, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, a := range append(append([]netip.Addr{}, Backends4...), Backends6...) {
			if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: hostNet(a), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		if node {
			r.Cfg.HostNetns, err = sock.NetnsCookie()
		}
		return err
	})
	r.Open(tb)
	tb.Cleanup(func() {
		if err := harness.Unload(r.D); err != nil {
			tb.Error(err)
		}
	})
	return r
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// Open is what an agent does that starts, as far as sockets are concerned: it adopts what the one before left.
func (r *Sockets) Open(tb testing.TB) {
	tb.Helper()
	var programs []string
	if r.Cfg.AtSockets() {
		programs = bpf.SocketProgramNames
	}
	d, err := harness.Open(r.Cfg, programs, fixtures.TestLog(tb))
	if err != nil {
		tb.Fatalf("%+v", err)
	}
	if err := errors.Join(d.AttachSockets(), d.Commit()); err != nil {
		tb.Fatal(err)
	}
	r.D = d
}

// NewThreadedCgroup makes a cgroup that single threads of the test can be in.
func NewThreadedCgroup(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp(OwnCgroup(tb), "beeline-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { removeCgroup(tb, dir) })
	if err := os.WriteFile(filepath.Join(dir, "cgroup.type"), []byte("threaded"), 0); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// removeCgroup removes a cgroup after the threads of the test have left it. An error lists the threads that remain.
func removeCgroup(tb testing.TB, dir string) {
	tb.Helper()
	if err := os.Remove(dir); err != nil {
		threads, readErr := os.ReadFile(filepath.Join(dir, "cgroup.threads"))
		tb.Error(errors.Join(fmt.Errorf("%w; threads of this process %d: %q", err, os.Getpid(), threads), readErr))
	}
}

// OwnCgroup is the directory of the test's own cgroup of version 2, beside the hierarchies of version 1 too.
func OwnCgroup(tb testing.TB) string {
	tb.Helper()
	dir, err := ownCgroup()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

// ownCgroup reads only once, before any thread is in a threaded cgroup: /proc/self/cgroup shows the cgroup of the main
// thread, and a parallel test may have moved that thread.
var ownCgroup = sync.OnceValues(func() (string, error) {
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	own := regexp.MustCompile(`(?m)^0::(.*)$`).FindSubmatch(cgroups)
	mount := regexp.MustCompile(`(?m)^\S+ \S+ \S+ / (\S+) .* - cgroup2 `).FindSubmatch(mounts)
	if own == nil || mount == nil {
		return "", errors.New("the root of the cgroups of version 2 is mounted nowhere")
	}
	return filepath.Join(string(mount[1]), string(own[1])), nil
})

// In runs f on a thread that is in the namespace and in the cgroup: sockets that it opens belong to both.
func (r *Sockets) In(tb testing.TB, f func() error) {
	tb.Helper()
	r.Do(tb, func() (err error) {
		if err := joinCgroup(r.Cgroup); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, joinCgroup(filepath.Dir(r.Cgroup))) }()
		return f()
	})
}

// joinCgroup puts the calling thread there.
func joinCgroup(dir string) error {
	return os.WriteFile(filepath.Join(dir, "cgroup.threads"), []byte(strconv.Itoa(unix.Gettid())), 0)
}

// ServeName answers every connection and every datagram with the backend's own address and port.
func (r *Sockets) ServeName(tb testing.TB, at netip.AddrPort) {
	tb.Helper()
	name := []byte(at.String())
	r.Do(tb, func() error {
		tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return errors.Join(err, tcp.Close())
		}
		tb.Cleanup(func() { tcp.Close(); udp.Close() })
		go AcceptAll(tcp, func(c net.Conn) {
			go func() {
				defer c.Close()
				b := make([]byte, 64)
				for {
					if _, err := c.Read(b); err != nil {
						return
					}
					_, _ = c.Write(name) // the client notices what is missing
				}
			}()
		})
		go func() {
			b := make([]byte, 64)
			for {
				_, from, err := udp.ReadFromUDPAddrPort(b)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_, _ = udp.WriteToUDPAddrPort(name, from)
				}
			}
		}()
		return nil
	})
}

// ServeAll lets all backends answer, with their names.
func (r *Sockets) ServeAll(tb testing.TB) {
	tb.Helper()
	for _, a := range append(append([]netip.Addr{}, Backends4...), Backends6...) {
		r.ServeName(tb, netip.AddrPortFrom(a, BackendPort))
	}
}

// PortOf is a port of a Service for TCP and UDP, at one frontend.
func PortOf(frontend netip.AddrPort, protocol cluster.Protocol, backends ...netip.Addr) service.Port {
	inside := service.Backends{}
	for _, b := range backends {
		inside.Addresses = append(inside.Addresses, netip.AddrPortFrom(b, BackendPort))
	}
	return service.Port{
		Name: service.PortName{Service: cluster.Key{Namespace: "test", Name: frontend.String()}, Number: frontend.Port(), Protocol: protocol},
		Entries: []service.Entry{{
			Frontend: service.Frontend{Address: frontend.Addr(), Port: frontend.Port(), Protocol: protocol},
			Kind:     service.KindClusterIP,
			Internal: inside,
			External: service.Backends{Without: service.Pass},
		}},
	}
}

// BothOf is PortOf for TCP and for UDP.
func BothOf(frontend netip.AddrPort, backends ...netip.Addr) []service.Port {
	return []service.Port{PortOf(frontend, cluster.TCP, backends...), PortOf(frontend, cluster.UDP, backends...)}
}

// Sync makes these all the Services there are.
func (r *Sockets) Sync(tb testing.TB, ports ...[]service.Port) {
	tb.Helper()
	var all []service.Port
	for _, p := range ports {
		all = append(all, p...)
	}
	if _, err := r.D.Services.Sync(all); err != nil {
		tb.Fatal(err)
	}
}

// Socket is a client's, at the system calls' own level. Addresses that are IPv4-mapped belong to sockets of IPv6.
type Socket struct{ Fd int }

func (r *Sockets) Socket(tb testing.TB, ipv6 bool, kind int) Socket {
	tb.Helper()
	s := r.Brief(tb, ipv6, kind)
	tb.Cleanup(func() { unix.Close(s.Fd) })
	timeout := unix.NsecToTimeval(Patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(s.Fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		tb.Fatal(err)
	}
	return s
}

func Sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func AddrPort(s unix.Sockaddr) netip.AddrPort {
	switch s := s.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), uint16(s.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr), uint16(s.Port))
	}
	return netip.AddrPort{}
}

func (s Socket) Connect(to netip.AddrPort) error {
	return Uninterrupted(func() error { return unix.Connect(s.Fd, Sockaddr(to)) })
}

// Uninterrupted makes a call again when a signal, of which the Go runtime sends some, has interrupted it.
func Uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Receive reads the next message of a socket, and its sender.
func Receive(fd int, b []byte) (n int, from unix.Sockaddr, err error) {
	err = Uninterrupted(func() (err error) {
		n, from, err = unix.Recvfrom(fd, b, 0)
		return err
	})
	return n, from, err
}

func (s Socket) Peer(tb testing.TB) netip.AddrPort {
	tb.Helper()
	a, err := unix.Getpeername(s.Fd)
	if err != nil {
		tb.Fatal(err)
	}
	return AddrPort(a)
}

// Ask sends something to where the socket is connected, and gives the name that the backend answers with.
func (s Socket) Ask(tb testing.TB) string {
	tb.Helper()
	if _, err := unix.Write(s.Fd, []byte("?")); err != nil {
		tb.Fatal(err)
	}
	name, _, err := s.Hear()
	if err != nil {
		tb.Fatal(err)
	}
	return name
}

// AskAt sends to an address without being connected; `from` is where the answer says it is from.
func (s Socket) AskAt(tb testing.TB, to netip.AddrPort) (name string, from netip.AddrPort) {
	tb.Helper()
	if err := unix.Sendto(s.Fd, []byte("?"), 0, Sockaddr(to)); err != nil {
		tb.Fatalf("send to %s: %v", to, err)
	}
	name, from, err := s.Hear()
	if err != nil {
		tb.Fatalf("hear of %s: %v", to, err)
	}
	return name, from
}

func (s Socket) Hear() (name string, from netip.AddrPort, err error) {
	b := make([]byte, 64)
	n, a, err := Receive(s.Fd, b)
	if err != nil {
		return "", netip.AddrPort{}, err
	}
	if n == 0 {
		return "", netip.AddrPort{}, fmt.Errorf("the backend closed the connection")
	}
	return string(b[:n]), AddrPort(a), nil
}

// Mapped gives the address as a socket of IPv6 has to say it.
func Mapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}

func RawConnect(fd int, to *unix.RawSockaddr) error {
	if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(to)), unsafe.Sizeof(*to)); errno != 0 {
		return errno
	}
	return nil
}

// PinnedLinkIDs gives the kernel's numbers of the links that are pinned in a directory.
func PinnedLinkIDs(tb testing.TB, dir string) []uint32 {
	tb.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var ids []uint32
	for _, f := range files {
		l, err := link.LoadPinnedLink(filepath.Join(dir, f.Name()), nil)
		if err != nil {
			tb.Fatal(err)
		}
		info, err := l.Info()
		if err := errors.Join(err, l.Close()); err != nil {
			tb.Fatal(err)
		}
		ids = append(ids, uint32(info.ID))
	}
	return ids
}

// Brief is a socket that the test closes itself.
func (r *Sockets) Brief(tb testing.TB, ipv6 bool, kind int) Socket {
	tb.Helper()
	family := unix.AF_INET
	if ipv6 {
		family = unix.AF_INET6
	}
	var s Socket
	r.In(tb, func() (err error) {
		s.Fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	return s
}
