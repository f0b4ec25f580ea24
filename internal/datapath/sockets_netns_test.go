package datapath

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// ways are all the kinds of addresses that a socket can be given, to the same Services.
var ways = []struct {
	name    string
	ipv6    bool // the socket's family
	to      netip.AddrPort
	backend netip.Addr
}{
	{"IPv4", false, web4, backends4[0]},
	{"IPv6", true, web6, backends6[0]},
	{"IPv4-mapped", true, mapped(web4), backends4[0]},
}

// A socket that connects to a Service talks to a backend, and believes to talk to the Service.
func TestSocketConnect(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	r.sync(t, bothOf(web4, backends4[0]), bothOf(web6, backends6[0]))
	for _, way := range ways {
		for kind, name := range map[int]string{unix.SOCK_STREAM: "TCP", unix.SOCK_DGRAM: "UDP"} {
			t.Run(way.name+"/"+name, func(t *testing.T) {
				s := r.socket(t, way.ipv6, kind)
				if err := s.connect(way.to); err != nil {
					t.Fatal(err)
				}
				if peer := s.peer(t); peer != way.to {
					t.Errorf("the peer is %s, expected %s", peer, way.to)
				}
				want := netip.AddrPortFrom(way.backend, backendPort).String()
				if name := s.ask(t); name != want {
					t.Errorf("%s answered, expected %s", name, want)
				}
				if kind != unix.SOCK_DGRAM {
					return
				}
				// With recvfrom, and with a destination that is that of connect.
				if name, from := s.askAt(t, way.to); name != want || from != way.to {
					t.Errorf("%s answered as %s, expected %s as %s", name, from, want, way.to)
				}
			})
		}
	}
	if n := r.count(t); n.Connections != 6 || n.Rejected != 0 {
		t.Errorf("counted are %+v, expected 6 connections", n)
	}
}

// count sums what is counted of all Services.
func (r *socketRig) count(tb testing.TB) bpfServiceCount {
	tb.Helper()
	var sum bpfServiceCount
	var id uint32
	var all []bpfServiceCount
	counts := r.d.objects.maps.ServiceCounts.Iterate()
	for counts.Next(&id, &all) {
		for _, c := range all {
			sum.Connections += c.Connections
			sum.Rejected += c.Rejected
		}
	}
	if err := counts.Err(); err != nil {
		tb.Fatal(err)
	}
	return sum
}

// Unconnected sockets get a backend for each datagram, and answers that come from the Service.
func TestSocketSend(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	r.sync(t, bothOf(web4, backends4...), bothOf(web6, backends6...))
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := r.socket(t, way.ipv6, unix.SOCK_DGRAM)
			first, from := s.askAt(t, way.to)
			if from != way.to {
				t.Errorf("the answer came from %s, expected %s", from, way.to)
			}
			for range 30 { // at random, all the same happens once in 3^30
				if name, from := s.askAt(t, way.to); name != first || from != way.to {
					t.Fatalf("%s answered as %s after %s, expected the same as %s", name, from, first, way.to)
				}
			}
		})
	}
	names := map[string]bool{}
	for range 64 { // missing one of three: (2/3)^64
		s := r.socket(t, false, unix.SOCK_DGRAM)
		name, _ := s.askAt(t, web4)
		names[name] = true
	}
	if len(names) != len(backends4) {
		t.Errorf("only %v answered of %v", names, backends4)
	}
}

// What is not addressed to a Service stays as it is, on sockets that used one too.
func TestSocketLeavesOthersAlone(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	r.sync(t, bothOf(web4, backends4[0]), bothOf(web6, backends6[0]))
	backend := netip.AddrPortFrom(backends4[0], backendPort)
	other := netip.AddrPortFrom(backends4[1], backendPort)

	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		s := r.socket(t, false, kind)
		if err := s.connect(backend); err != nil {
			t.Fatal(err)
		}
		if peer, name := s.peer(t), s.ask(t); peer != backend || name != backend.String() {
			t.Errorf("%s answered as %s, expected %s", name, peer, backend)
		}
	}
	// The Service's address with another port is nobody's.
	s := r.socket(t, false, unix.SOCK_STREAM)
	if err := s.connect(netip.AddrPortFrom(web4.Addr(), 81)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("another port of the Service: %v", err)
	}

	t.Run("connected again", func(t *testing.T) {
		s := r.socket(t, false, unix.SOCK_DGRAM)
		for _, to := range []netip.AddrPort{web4, backend, web4, other, backend} {
			if err := s.connect(to); err != nil {
				t.Fatal(err)
			}
			s.ask(t)
			if peer := s.peer(t); peer != to {
				t.Errorf("the peer is %s, expected %s", peer, to)
			}
		}
	})
	t.Run("TCP connected again after a refusal", func(t *testing.T) {
		nobody := netip.MustParseAddrPort("10.96.0.11:80")
		r.sync(t, bothOf(web4, backends4[0]), bothOf(nobody))
		s := r.socket(t, false, unix.SOCK_STREAM)
		if err := s.connect(nobody); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
		if err := s.connect(web4); err != nil {
			t.Fatal(err)
		}
		if peer, name := s.peer(t), s.ask(t); peer != web4 || name != backend.String() {
			t.Errorf("%s answered as %s", name, peer)
		}
	})
	t.Run("disconnected", func(t *testing.T) {
		s := r.socket(t, false, unix.SOCK_DGRAM)
		if err := s.connect(web4); err != nil {
			t.Fatal(err)
		}
		if err := disconnect(s.fd); err != nil {
			t.Fatal(err)
		}
		if _, from := s.askAt(t, backend); from != backend {
			t.Errorf("the answer to a backend came from %s", from)
		}
		if _, from := s.askAt(t, web4); from != web4 {
			t.Errorf("the answer to a Service came from %s", from)
		}
		if _, from := s.askAt(t, backend); from != backend {
			t.Errorf("the answer to a backend came from %s after the Service was used", from)
		}
	})
	t.Run("connected elsewhere", func(t *testing.T) {
		// A connected socket may send elsewhere; what it hears is its peer.
		s := r.socket(t, false, unix.SOCK_DGRAM)
		if err := s.connect(web4); err != nil {
			t.Fatal(err)
		}
		r.sync(t, bothOf(web4, backends4[0]), bothOf(dns4, backends4[2]))
		for _, to := range []netip.AddrPort{other, dns4} {
			if err := unix.Sendto(s.fd, []byte("?"), 0, sockaddr(to)); err != nil {
				t.Fatal(err)
			}
		}
		// Its backend answers it, also when the Service has others by now.
		r.sync(t, bothOf(web4, backends4[1:]...))
		if name, from := s.askAt(t, web4); name != backend.String() || from != web4 {
			t.Errorf("%s answered as %s", name, from)
		}
		if peer, name := s.peer(t), s.ask(t); peer != web4 || name != backend.String() {
			t.Errorf("%s answered as %s", name, peer)
		}
	})
}

// disconnect dissolves a datagram socket's association (connect(2), AF_UNSPEC).
func disconnect(fd int) error {
	var unspecified unix.RawSockaddr // the family is 0
	return rawConnect(fd, &unspecified)
}
