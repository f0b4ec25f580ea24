package attach_test

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// The cost of a new connection, a connect and a datagram: to a Service, to another address, and without programs.
func BenchmarkSocket(b *testing.B) {
	testenv.Root(b)
	r := netlab.NewSockets(b, false)
	var services []service.Port
	for i := range 10000 {
		a := netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
		services = append(services, netlab.PortOf(netip.AddrPortFrom(a, 80), cluster.UDP, netlab.Backends4...))
	}
	services = append(services, netlab.BothOf(netlab.Web4, netlab.Backends4[0])...)
	services = append(services, netlab.BothOf(netlab.Dns4, netlab.Backends4...)...)
	backend := netip.AddrPortFrom(netlab.Backends4[0], netlab.BackendPort)
	connect := func(to ...netip.AddrPort) func(*testing.B, netlab.Socket) {
		return func(b *testing.B, s netlab.Socket) {
			addresses := []unix.Sockaddr{}
			for _, a := range to {
				addresses = append(addresses, netlab.Sockaddr(a))
			}
			for i := 0; b.Loop(); i++ {
				if err := unix.Connect(s.Fd, addresses[i%len(to)]); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	send := func(to ...netip.AddrPort) func(*testing.B, netlab.Socket) {
		return func(b *testing.B, s netlab.Socket) {
			addresses := []unix.Sockaddr{}
			for _, a := range to {
				addresses = append(addresses, netlab.Sockaddr(a))
			}
			payload := []byte("?")
			for i := 0; b.Loop(); i++ {
				if err := unix.Sendto(s.Fd, payload, 0, addresses[i%len(to)]); err != nil && err != unix.ECONNREFUSED {
					b.Fatal(err)
				}
			}
		}
	}
	run := func(name string, f func(*testing.B, netlab.Socket)) {
		b.Run(name, func(b *testing.B) { f(b, r.Socket(b, false, unix.SOCK_DGRAM)) })
	}
	listener := listener(r, b, backend)
	open := func(name string, to netip.AddrPort) {
		b.Run("open/"+name, func(b *testing.B) {
			address := netlab.Sockaddr(to)
			r.In(b, func() error {
				for b.Loop() {
					if err := openOnce(listener, address); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	if err := attach.TakeOffSockets(r.Cfg.Root); err != nil {
		b.Fatal(err)
	}
	awaitUntouched(r, b)
	open("programs=none", backend)
	run("connect/programs=none", connect(backend))
	run("send/programs=none", send(backend))
	if err := r.D.AttachSockets(); err != nil {
		b.Fatal(err)
	}
	r.Sync(b, services)
	open("to=pod", backend)
	open("to=Service", netlab.Web4)
	run("connect/to=pod", connect(backend))
	run("connect/to=Service", connect(netlab.Web4))
	run("send/to=pod", send(backend))
	run("send/to=Service", send(netlab.Web4))
	run("send/to=Services", send(netlab.Web4, netlab.Dns4))
}

// listener is a socket that accepts connections. Its backlog is never full: each connection is accepted before the
// next one.
func listener(r *netlab.Sockets, tb testing.TB, at netip.AddrPort) int {
	tb.Helper()
	var fd int
	r.Do(tb, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	tb.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, netlab.Sockaddr(at)), unix.Listen(fd, 8)); err != nil {
		tb.Fatal(err)
	}
	return fd
}

// openOnce opens a TCP connection to the listener, through an address, and resets it, so that no TIME_WAIT is left.
func openOnce(listener int, to unix.Sockaddr) error {
	client, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	linger := unix.Linger{Onoff: 1}
	err = errors.Join(unix.SetsockoptLinger(client, unix.SOL_SOCKET, unix.SO_LINGER, &linger), unix.Connect(client, to))
	if err != nil {
		return errors.Join(err, unix.Close(client))
	}
	server, _, err := unix.Accept(listener)
	if err != nil {
		return errors.Join(err, unix.Close(client))
	}
	return errors.Join(unix.Close(client), unix.Close(server))
}
