package datapath

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// What a new connection, a connect and a datagram cost that are for a Service, that are not, and where there are no programs.
func BenchmarkSocket(b *testing.B) {
	testenv.Root(b)
	r := newSocketRig(b, false)
	var services []service.Port
	for i := range 10000 {
		a := netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
		services = append(services, portOf(netip.AddrPortFrom(a, 80), cluster.UDP, backends4...))
	}
	services = append(services, bothOf(web4, backends4[0])...)
	services = append(services, bothOf(dns4, backends4...)...)
	backend := netip.AddrPortFrom(backends4[0], backendPort)
	connect := func(to ...netip.AddrPort) func(*testing.B, socket) {
		return func(b *testing.B, s socket) {
			addresses := []unix.Sockaddr{}
			for _, a := range to {
				addresses = append(addresses, sockaddr(a))
			}
			for i := 0; b.Loop(); i++ {
				if err := unix.Connect(s.fd, addresses[i%len(to)]); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	send := func(to ...netip.AddrPort) func(*testing.B, socket) {
		return func(b *testing.B, s socket) {
			addresses := []unix.Sockaddr{}
			for _, a := range to {
				addresses = append(addresses, sockaddr(a))
			}
			payload := []byte("?")
			for i := 0; b.Loop(); i++ {
				if err := unix.Sendto(s.fd, payload, 0, addresses[i%len(to)]); err != nil && err != unix.ECONNREFUSED {
					b.Fatal(err)
				}
			}
		}
	}
	run := func(name string, f func(*testing.B, socket)) {
		b.Run(name, func(b *testing.B) { f(b, r.socket(b, false, unix.SOCK_DGRAM)) })
	}
	listener := r.listener(b, backend)
	open := func(name string, to netip.AddrPort) {
		b.Run("open/"+name, func(b *testing.B) {
			address := sockaddr(to)
			r.in(b, func() error {
				for b.Loop() {
					if err := openOnce(listener, address); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	if err := takeOffSockets(r.cfg.Root); err != nil {
		b.Fatal(err)
	}
	r.awaitUntouched(b)
	open("programs=none", backend)
	run("connect/programs=none", connect(backend))
	run("send/programs=none", send(backend))
	if err := r.d.AttachSockets(); err != nil {
		b.Fatal(err)
	}
	r.sync(b, services)
	open("to=pod", backend)
	open("to=Service", web4)
	run("connect/to=pod", connect(backend))
	run("connect/to=Service", connect(web4))
	run("send/to=pod", send(backend))
	run("send/to=Service", send(web4))
	run("send/to=Services", send(web4, dns4))
}

// listener is a socket that accepts connections, whose backlog is never full: each is accepted before the next one.
func (r *socketRig) listener(tb testing.TB, at netip.AddrPort) int {
	tb.Helper()
	var fd int
	r.do(tb, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	tb.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, sockaddr(at)), unix.Listen(fd, 8)); err != nil {
		tb.Fatal(err)
	}
	return fd
}

// openOnce opens a connection of TCP to the listener, by way of an address, and resets it: nothing of it stays.
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
