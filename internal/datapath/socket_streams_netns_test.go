package datapath

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// A TCP socket that was translated has a place in the table from connect to close, whatever it connects to meanwhile.
func TestSocketStreams(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	r.sync(t, bothOf(web4, backends4[0]), bothOf(web6, backends6[0]), bothOf(dns4, backends4[1]))
	backend := netip.AddrPortFrom(backends4[0], backendPort)
	expect := func(t *testing.T, open socket, peer netip.AddrPort, places int) {
		t.Helper()
		if got := open.peer(t); got != peer {
			t.Errorf("the peer is %s, expected %s", got, peer)
		}
		if taken := r.streams(t); len(taken) != places {
			t.Errorf("%d places are taken, expected %d", len(taken), places)
		}
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := r.brief(t, way.ipv6, unix.SOCK_STREAM)
			s.mustConnect(t, way.to)
			expect(t, s, way.to, 1)
			other := r.brief(t, way.ipv6, unix.SOCK_STREAM)
			other.mustConnect(t, way.to)
			expect(t, other, way.to, 2)
			s.close(t)
			expect(t, other, way.to, 1)
			other.close(t)
			if taken := r.streams(t); len(taken) != 0 {
				t.Errorf("%d places stay with sockets that are closed", len(taken))
			}
		})
	}
	t.Run("connected again", func(t *testing.T) {
		s := r.brief(t, false, unix.SOCK_STREAM)
		for i, to := range []netip.AddrPort{web4, dns4, backend, web4} {
			if i > 0 {
				if err := disconnect(s.fd); err != nil {
					t.Fatal(err)
				}
			}
			s.mustConnect(t, to)
			places := 1
			if to == backend {
				places = 0 // which is that of the first Service too: nothing of it is left
			}
			expect(t, s, to, places)
		}
		s.close(t)
	})
	t.Run("sockets without", func(t *testing.T) {
		for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_STREAM} {
			s := r.brief(t, false, kind)
			to := map[int]netip.AddrPort{unix.SOCK_DGRAM: web4, unix.SOCK_STREAM: backend}[kind]
			s.mustConnect(t, to)
			expect(t, s, to, 0)
			s.close(t)
		}
	})
}

// A TCP socket whose place is another one's keeps what it asked for itself, and leaves the other one's alone.
func TestSocketStreamsTaken(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	r.sync(t, bothOf(web4, backends4[0]), bothOf(dns4, backends4[1]))
	backend := netip.AddrPortFrom(backends4[0], backendPort)
	// No socket has this cookie; who takes it for its own would tell this Service.
	foreign := bpfSockTcpEntry{Cookie: 1 << 62, Service: addressOf(dns4.Addr()), Backend: addressOf(backends4[0])}
	m := r.d.objects.maps.SockTcp
	before := make([]bpfSockTcpEntry, m.MaxEntries())
	indices := make([]uint32, len(before))
	for i := range before {
		before[i], indices[i] = foreign, uint32(i)
	}
	if _, err := m.BatchUpdate(indices, before, nil); err != nil {
		t.Fatal(err)
	}
	s := r.brief(t, false, unix.SOCK_STREAM)
	for i, to := range []netip.AddrPort{web4, dns4, backend, web4} {
		if i > 0 {
			if err := disconnect(s.fd); err != nil {
				t.Fatal(err)
			}
		}
		s.mustConnect(t, to)
		if peer := s.peer(t); peer != to {
			t.Errorf("the peer is %s, expected %s", peer, to)
		}
	}
	// What it has it goes on with, also when there would be room.
	if _, err := m.BatchUpdate(indices, make([]bpfSockTcpEntry, len(indices)), nil); err != nil {
		t.Fatal(err)
	}
	if err := disconnect(s.fd); err != nil {
		t.Fatal(err)
	}
	s.mustConnect(t, dns4)
	if peer, taken := s.peer(t), r.streams(t); peer != dns4 || len(taken) != 0 {
		t.Errorf("the peer is %s, expected %s, and %d places are taken", peer, dns4, len(taken))
	}
	if _, err := m.BatchUpdate(indices, before, nil); err != nil {
		t.Fatal(err)
	}
	s.close(t)
	if after := r.streams(t); !slices.Equal(after, before) {
		t.Errorf("%d places are left to the others, expected %d", len(after), len(before))
	}
}

// streams are the elements that are somebody's.
func (r *socketRig) streams(tb testing.TB) (taken []bpfSockTcpEntry) {
	tb.Helper()
	m := r.d.objects.maps.SockTcp
	indices, all := make([]uint32, m.MaxEntries()), make([]bpfSockTcpEntry, m.MaxEntries())
	var cursor ebpf.MapBatchCursor
	if n, err := m.BatchLookup(&cursor, indices, all, nil); n != len(all) || (err != nil && !errors.Is(err, ebpf.ErrKeyNotExist)) {
		tb.Fatalf("%d elements: %v", n, err)
	}
	for _, s := range all {
		if s.Cookie != 0 {
			taken = append(taken, s)
		}
	}
	return taken
}

func (s socket) mustConnect(tb testing.TB, to netip.AddrPort) {
	tb.Helper()
	if err := s.connect(to); err != nil {
		tb.Fatal(err)
	}
}

// brief is a socket that the test closes itself.
func (r *socketRig) brief(tb testing.TB, ipv6 bool, kind int) socket {
	tb.Helper()
	family := unix.AF_INET
	if ipv6 {
		family = unix.AF_INET6
	}
	var s socket
	r.in(tb, func() (err error) {
		s.fd, err = unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		return err
	})
	return s
}

func (s socket) close(tb testing.TB) {
	tb.Helper()
	if err := unix.Close(s.fd); err != nil {
		tb.Error(err)
	}
}
