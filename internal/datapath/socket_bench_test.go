package datapath

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// What a connect and a datagram cost that are for a Service, that are not, and where there are no programs.
func BenchmarkSocket(b *testing.B) {
	testenv.Root(b)
	r := newSocketRig(b, false)
	var services []service.Port
	for i := range 10000 {
		a := netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})
		services = append(services, portOf(netip.AddrPortFrom(a, 80), cluster.UDP, backends4...))
	}
	services = append(services, bothOf(web4, backends4...)...)
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
	if _, err := detachSockets(r.cfg.Root); err != nil {
		b.Fatal(err)
	}
	r.awaitUntouched(b)
	run("connect/programs=none", connect(backend))
	run("send/programs=none", send(backend))
	if err := r.d.AttachSockets(); err != nil {
		b.Fatal(err)
	}
	r.sync(b, services)
	run("connect/to=pod", connect(backend))
	run("connect/to=Service", connect(web4))
	run("send/to=pod", send(backend))
	run("send/to=Service", send(web4))
	run("send/to=Services", send(web4, dns4))
}
