package lb_test

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// ways are all the kinds of addresses that a socket can be given, to the same Services.
var ways = []struct {
	name    string
	ipv6    bool // the socket's family
	to      netip.AddrPort
	backend netip.Addr
}{
	{"IPv4", false, netlab.Web4, netlab.Backends4[0]},
	{"IPv6", true, netlab.Web6, netlab.Backends6[0]},
	{"IPv4-mapped", true, netlab.Mapped(netlab.Web4), netlab.Backends4[0]},
}

// A socket that connects to a Service talks to a backend, and believes to talk to the Service.
func TestSocketConnect(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(netlab.Web6, netlab.Backends6[0]))
	for _, way := range ways {
		for kind, name := range map[int]string{unix.SOCK_STREAM: "TCP", unix.SOCK_DGRAM: "UDP"} {
			t.Run(way.name+"/"+name, func(t *testing.T) {
				s := r.Socket(t, way.ipv6, kind)
				if err := s.Connect(way.to); err != nil {
					t.Fatal(err)
				}
				if peer := s.Peer(t); peer != way.to {
					t.Errorf("the peer is %s, expected %s", peer, way.to)
				}
				want := netip.AddrPortFrom(way.backend, netlab.BackendPort).String()
				if name := s.Ask(t); name != want {
					t.Errorf("%s answered, expected %s", name, want)
				}
				if kind != unix.SOCK_DGRAM {
					return
				}
				// With recvfrom, and with a destination that is that of connect.
				if name, from := s.AskAt(t, way.to); name != want || from != way.to {
					t.Errorf("%s answered as %s, expected %s as %s", name, from, want, way.to)
				}
			})
		}
	}
	if n := countServices(r, t); n.Connections != 6 || n.Rejected != 0 {
		t.Errorf("counted are %+v, expected 6 connections", n)
	}
}

// countServices sums what is counted of all Services.
func countServices(r *netlab.Sockets, tb testing.TB) bpf.ServiceCount {
	tb.Helper()
	var sum bpf.ServiceCount
	var id uint32
	var all []bpf.ServiceCount
	counts := r.D.Objects.Maps.ServiceCounts.Iterate()
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
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4...), netlab.BothOf(netlab.Web6, netlab.Backends6...))
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := r.Socket(t, way.ipv6, unix.SOCK_DGRAM)
			first, from := s.AskAt(t, way.to)
			if from != way.to {
				t.Errorf("the answer came from %s, expected %s", from, way.to)
			}
			for range 30 { // at random, all the same happens once in 3^30
				if name, from := s.AskAt(t, way.to); name != first || from != way.to {
					t.Fatalf("%s answered as %s after %s, expected the same as %s", name, from, first, way.to)
				}
			}
		})
	}
	names := map[string]bool{}
	for range 64 { // missing one of three: (2/3)^64
		s := r.Socket(t, false, unix.SOCK_DGRAM)
		name, _ := s.AskAt(t, netlab.Web4)
		names[name] = true
	}
	if len(names) != len(netlab.Backends4) {
		t.Errorf("only %v answered of %v", names, netlab.Backends4)
	}
}

// What is not addressed to a Service stays as it is, on sockets that used one too.
func TestSocketLeavesOthersAlone(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(netlab.Web6, netlab.Backends6[0]))
	backend := netip.AddrPortFrom(netlab.Backends4[0], netlab.BackendPort)
	other := netip.AddrPortFrom(netlab.Backends4[1], netlab.BackendPort)

	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		s := r.Socket(t, false, kind)
		if err := s.Connect(backend); err != nil {
			t.Fatal(err)
		}
		if peer, name := s.Peer(t), s.Ask(t); peer != backend || name != backend.String() {
			t.Errorf("%s answered as %s, expected %s", name, peer, backend)
		}
	}
	// The Service's address with another port has no frontend.
	s := r.Socket(t, false, unix.SOCK_STREAM)
	if err := s.Connect(netip.AddrPortFrom(netlab.Web4.Addr(), 81)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("another port of the Service: %v", err)
	}

	t.Run("connected again", func(t *testing.T) {
		s := r.Socket(t, false, unix.SOCK_DGRAM)
		for _, to := range []netip.AddrPort{netlab.Web4, backend, netlab.Web4, other, backend} {
			if err := s.Connect(to); err != nil {
				t.Fatal(err)
			}
			s.Ask(t)
			if peer := s.Peer(t); peer != to {
				t.Errorf("the peer is %s, expected %s", peer, to)
			}
		}
	})
	t.Run("TCP connected again after a refusal", func(t *testing.T) {
		noService := netip.MustParseAddrPort("10.96.0.11:80")
		r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(noService))
		s := r.Socket(t, false, unix.SOCK_STREAM)
		if err := s.Connect(noService); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
		if err := s.Connect(netlab.Web4); err != nil {
			t.Fatal(err)
		}
		if peer, name := s.Peer(t), s.Ask(t); peer != netlab.Web4 || name != backend.String() {
			t.Errorf("%s answered as %s", name, peer)
		}
	})
	t.Run("disconnected", func(t *testing.T) {
		s := r.Socket(t, false, unix.SOCK_DGRAM)
		if err := s.Connect(netlab.Web4); err != nil {
			t.Fatal(err)
		}
		if err := disconnect(s.Fd); err != nil {
			t.Fatal(err)
		}
		if _, from := s.AskAt(t, backend); from != backend {
			t.Errorf("the answer to a backend came from %s", from)
		}
		if _, from := s.AskAt(t, netlab.Web4); from != netlab.Web4 {
			t.Errorf("the answer to a Service came from %s", from)
		}
		if _, from := s.AskAt(t, backend); from != backend {
			t.Errorf("the answer to a backend came from %s after the Service was used", from)
		}
	})
	t.Run("connected elsewhere", func(t *testing.T) {
		// A connected socket may send elsewhere; what it hears is its peer.
		s := r.Socket(t, false, unix.SOCK_DGRAM)
		if err := s.Connect(netlab.Web4); err != nil {
			t.Fatal(err)
		}
		r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(netlab.Dns4, netlab.Backends4[2]))
		for _, to := range []netip.AddrPort{other, netlab.Dns4} {
			if err := unix.Sendto(s.Fd, []byte("?"), 0, netlab.Sockaddr(to)); err != nil {
				t.Fatal(err)
			}
		}
		// Its backend answers it, also when the Service has others by now.
		r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[1:]...))
		if name, from := s.AskAt(t, netlab.Web4); name != backend.String() || from != netlab.Web4 {
			t.Errorf("%s answered as %s", name, from)
		}
		if peer, name := s.Peer(t), s.Ask(t); peer != netlab.Web4 || name != backend.String() {
			t.Errorf("%s answered as %s", name, peer)
		}
	})
}

// disconnect dissolves a datagram socket's association (connect(2), AF_UNSPEC).
func disconnect(fd int) error {
	var unspecified unix.RawSockaddr // the family is 0
	return netlab.RawConnect(fd, &unspecified)
}
