package lb_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// A TCP socket that was translated has a place in the table from connect to close, whatever it connects to meanwhile.
func TestSocketStreams(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(netlab.Web6, netlab.Backends6[0]), netlab.BothOf(netlab.Dns4, netlab.Backends4[1]))
	backend := netip.AddrPortFrom(netlab.Backends4[0], netlab.BackendPort)
	expect := func(t *testing.T, open netlab.Socket, peer netip.AddrPort, places int) {
		t.Helper()
		if got := open.Peer(t); got != peer {
			t.Errorf("the peer is %s, expected %s", got, peer)
		}
		if taken := streams(r, t); len(taken) != places {
			t.Errorf("%d places are taken, expected %d", len(taken), places)
		}
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := r.Brief(t, way.ipv6, unix.SOCK_STREAM)
			mustConnect(s, t, way.to)
			expect(t, s, way.to, 1)
			other := r.Brief(t, way.ipv6, unix.SOCK_STREAM)
			mustConnect(other, t, way.to)
			expect(t, other, way.to, 2)
			closeSocket(s, t)
			expect(t, other, way.to, 1)
			closeSocket(other, t)
			if taken := streams(r, t); len(taken) != 0 {
				t.Errorf("%d places stay with sockets that are closed", len(taken))
			}
		})
	}
	t.Run("connected again", func(t *testing.T) {
		s := r.Brief(t, false, unix.SOCK_STREAM)
		for i, to := range []netip.AddrPort{netlab.Web4, netlab.Dns4, backend, netlab.Web4} {
			if i > 0 {
				if err := disconnect(s.Fd); err != nil {
					t.Fatal(err)
				}
			}
			mustConnect(s, t, to)
			places := 1
			if to == backend {
				places = 0 // which is that of the first Service too: nothing of it is left
			}
			expect(t, s, to, places)
		}
		closeSocket(s, t)
	})
	t.Run("sockets without", func(t *testing.T) {
		for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_STREAM} {
			s := r.Brief(t, false, kind)
			to := map[int]netip.AddrPort{unix.SOCK_DGRAM: netlab.Web4, unix.SOCK_STREAM: backend}[kind]
			mustConnect(s, t, to)
			expect(t, s, to, 0)
			closeSocket(s, t)
		}
	})
}

// A TCP socket whose place is another one's keeps what it asked for itself, and leaves the other one's alone.
func TestSocketStreamsTaken(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(netlab.Dns4, netlab.Backends4[1]))
	backend := netip.AddrPortFrom(netlab.Backends4[0], netlab.BackendPort)
	// No socket has this cookie; who takes it for its own would tell this Service.
	foreign := bpf.SockTcpEntry{Cookie: 1 << 62, Service: bpf.AddressOf(netlab.Dns4.Addr()), Backend: bpf.AddressOf(netlab.Backends4[0])}
	m := r.D.Objects.Maps.SockTcp
	before := make([]bpf.SockTcpEntry, m.MaxEntries())
	indices := make([]uint32, len(before))
	for i := range before {
		before[i], indices[i] = foreign, uint32(i)
	}
	if _, err := m.BatchUpdate(indices, before, nil); err != nil {
		t.Fatal(err)
	}
	s := r.Brief(t, false, unix.SOCK_STREAM)
	for i, to := range []netip.AddrPort{netlab.Web4, netlab.Dns4, backend, netlab.Web4} {
		if i > 0 {
			if err := disconnect(s.Fd); err != nil {
				t.Fatal(err)
			}
		}
		mustConnect(s, t, to)
		if peer := s.Peer(t); peer != to {
			t.Errorf("the peer is %s, expected %s", peer, to)
		}
	}
	// What it has it goes on with, also when there would be room.
	if _, err := m.BatchUpdate(indices, make([]bpf.SockTcpEntry, len(indices)), nil); err != nil {
		t.Fatal(err)
	}
	if err := disconnect(s.Fd); err != nil {
		t.Fatal(err)
	}
	mustConnect(s, t, netlab.Dns4)
	if peer, taken := s.Peer(t), streams(r, t); peer != netlab.Dns4 || len(taken) != 0 {
		t.Errorf("the peer is %s, expected %s, and %d places are taken", peer, netlab.Dns4, len(taken))
	}
	if _, err := m.BatchUpdate(indices, before, nil); err != nil {
		t.Fatal(err)
	}
	closeSocket(s, t)
	if after := streams(r, t); !slices.Equal(after, before) {
		t.Errorf("%d places are left to the others, expected %d", len(after), len(before))
	}
}

// streams are the elements that are somebody's.
func streams(r *netlab.Sockets, tb testing.TB) (taken []bpf.SockTcpEntry) {
	tb.Helper()
	m := r.D.Objects.Maps.SockTcp
	indices, all := make([]uint32, m.MaxEntries()), make([]bpf.SockTcpEntry, m.MaxEntries())
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

func mustConnect(s netlab.Socket, tb testing.TB, to netip.AddrPort) {
	tb.Helper()
	if err := s.Connect(to); err != nil {
		tb.Fatal(err)
	}
}

func closeSocket(s netlab.Socket, tb testing.TB) {
	tb.Helper()
	if err := unix.Close(s.Fd); err != nil {
		tb.Error(err)
	}
}
