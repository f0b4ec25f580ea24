package lb_test

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// send sends a question without waiting for the answer.
func send(s netlab.Socket, tb testing.TB, to netip.AddrPort) {
	tb.Helper()
	if err := unix.Sendto(s.Fd, []byte("?"), 0, netlab.Sockaddr(to)); err != nil {
		tb.Fatalf("send to %s: %v", to, err)
	}
}

// mustHear is hear for an answer that has to come.
func mustHear(s netlab.Socket, tb testing.TB) (name string, from netip.AddrPort) {
	tb.Helper()
	name, from, err := s.Hear()
	if err != nil {
		tb.Fatal(err)
	}
	return name, from
}

// Sockets do not share the memory of their earlier Services: others, however many there are, do not make a socket forget its own.
func TestSocketSendAmongOthers(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	// No server listens at the other Services' backend, so that the servers of this one are not busy.
	noServer := netip.AddrPortFrom(netlab.Backends4[0], 9)
	var busy [2]netip.AddrPort
	var ports []service.Port
	for i := range busy {
		busy[i] = netip.AddrPortFrom(netlab.Dns4.Addr(), uint16(1000+i))
		p := netlab.PortOf(busy[i], cluster.UDP)
		p.Entries[0].Internal.Addresses = []netip.AddrPort{noServer}
		ports = append(ports, p)
	}
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[:2]...), netlab.BothOf(netlab.Dns4, netlab.Backends4[2]), ports)
	s := r.Socket(t, false, unix.SOCK_DGRAM)
	had, _ := s.AskAt(t, netlab.Web4)
	send(s, t, netlab.Web4)
	send(s, t, netlab.Dns4)

	const others = 12000 // each of which changes its Service twice
	r.In(t, func() error {
		for range others {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			for _, to := range []netip.AddrPort{busy[0], busy[1], busy[0]} {
				send(netlab.Socket{Fd: fd}, t, to)
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
		}
		return nil
	})
	from := map[netip.AddrPort]int{}
	for range 2 {
		_, a := mustHear(s, t)
		from[a]++
	}
	if from[netlab.Web4] != 1 || from[netlab.Dns4] != 1 {
		t.Errorf("the answers came from %v, expected one of each of %s and %s", from, netlab.Web4, netlab.Dns4)
	}
	if name, _ := s.AskAt(t, netlab.Web4); name != had {
		t.Errorf("%s answered after %s", name, had)
	}
}

// manyServices are Services of UDP, each with one backend, whose name tells which one has answered.
func manyServices(r *netlab.Sockets, tb testing.TB, n int) (all []netip.AddrPort, serviceOf map[string]netip.AddrPort) {
	tb.Helper()
	var ports [][]service.Port
	serviceOf = map[string]netip.AddrPort{}
	for i := range n {
		to := netip.AddrPortFrom(netlab.Dns4.Addr(), uint16(1000+i))
		backend := netip.AddrPortFrom(netlab.Backends4[i%len(netlab.Backends4)], uint16(2000+i))
		r.ServeName(tb, backend)
		p := netlab.PortOf(to, cluster.UDP)
		p.Entries[0].Internal.Addresses = []netip.AddrPort{backend}
		ports = append(ports, []service.Port{p})
		all = append(all, to)
		serviceOf[backend.String()] = to
	}
	r.Sync(tb, ports...)
	return all, serviceOf
}

// remembered is how many Services a socket remembers: the last one and those before it.
var remembered = 1 + len(bpf.SockUdpEntries{}.Entry)

// A socket that uses more Services than it remembers forgets the one that it used longest ago, and no other one.
func TestSocketSendForgetsOldest(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	all, serviceOf := manyServices(r, t, remembered+2)
	s := r.Socket(t, false, unix.SOCK_DGRAM)
	// Used longest ago is not first used: 0 is used again before there are too many, and 1 and 2 are what goes.
	for _, to := range append(append(append([]netip.AddrPort{}, all[:3]...), all[0]), all[3:]...) {
		send(s, t, to)
	}
	for range len(all) + 1 {
		name, from := mustHear(s, t)
		want := serviceOf[name]
		if want == all[1] || want == all[2] {
			want = netip.MustParseAddrPort(name)
		}
		if from != want {
			t.Errorf("the answer of %s came from %s, expected %s", name, from, want)
		}
	}
}

// A socket that sends to a backend itself gets replies of the backend. Replies of its other Services, also later ones, keep the Services' addresses.
func TestSocketSendToBackend(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	all, serviceOf := manyServices(r, t, 3)
	backendOf := map[netip.AddrPort]netip.AddrPort{}
	for name, to := range serviceOf {
		backendOf[to] = netip.MustParseAddrPort(name)
	}
	for i, direct := range all { // the last Service, and those before
		s := r.Socket(t, false, unix.SOCK_DGRAM)
		for _, to := range all {
			send(s, t, to)
		}
		send(s, t, backendOf[direct])
		for range len(all) + 1 {
			name, from := mustHear(s, t)
			want := serviceOf[name]
			if want == direct {
				want = backendOf[direct]
			}
			if from != want {
				t.Errorf("sent to the backend of Service %d: the answer of %s came from %s, expected %s", i, name, from, want)
			}
		}
		for _, to := range all { // the Services' again
			if _, from := s.AskAt(t, to); from != to {
				t.Errorf("sent to the backend of Service %d, and to %s: the answer came from %s", i, to, from)
			}
		}
	}
}

// Backends of earlier Services are used again while the Service has them, the last one first; the answers of others remain the Service's.
func TestSocketSendEarlierSets(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	dns := netlab.BothOf(netlab.Dns4, netlab.Backends4[2])
	s := r.Socket(t, false, unix.SOCK_DGRAM)
	ask := func(to netip.AddrPort, want netip.Addr) {
		t.Helper()
		if name, from := s.AskAt(t, to); name != netip.AddrPortFrom(want, netlab.BackendPort).String() || from != to {
			t.Fatalf("%s answered as %s, expected %s", name, from, want)
		}
	}
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), dns)
	ask(netlab.Web4, netlab.Backends4[0])
	ask(netlab.Dns4, netlab.Backends4[2])
	send(s, t, netlab.Web4)
	send(s, t, netlab.Dns4)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[1]), dns) // web4's is gone, with an answer under way
	send(s, t, netlab.Web4)
	from := map[netip.AddrPort]int{}
	for range 3 {
		_, a := mustHear(s, t)
		from[a]++
	}
	if from[netlab.Web4] != 2 || from[netlab.Dns4] != 1 {
		t.Errorf("the answers came from %v, expected two of %s and one of %s", from, netlab.Web4, netlab.Dns4)
	}
	ask(netlab.Web4, netlab.Backends4[1])
	ask(netlab.Dns4, netlab.Backends4[2])
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[:2]...), dns) // the first one is there again
	for range 20 {                                                      // by chance once in 2^20
		ask(netlab.Web4, netlab.Backends4[1])
		ask(netlab.Dns4, netlab.Backends4[2])
	}
}

// Threads that send and receive at one socket at the same time: each answer is its Service's, or if that is forgotten, the backend's.
func TestSocketSendAtOnce(t *testing.T) {
	testenv.Root(t)
	for name, services := range map[string]int{"all remembered": remembered, "some forgotten": 3 * remembered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := netlab.NewSockets(t, false)
			all, serviceOf := manyServices(r, t, services)
			s := r.Socket(t, false, unix.SOCK_DGRAM)
			var stop atomic.Bool
			var replies, forgotten atomic.Int64
			var senders, receivers sync.WaitGroup
			for i := range 3 {
				senders.Go(func() {
					for at := i; !stop.Load(); at += 1 + 2*i {
						if err := unix.Sendto(s.Fd, []byte("?"), 0, netlab.Sockaddr(all[at%len(all)])); err != nil {
							t.Errorf("send: %v", err)
							return
						}
					}
				})
				receivers.Go(func() {
					for {
						name, from, err := s.Hear()
						switch {
						case err != nil:
							return
						case from == serviceOf[name]:
						case services > remembered && from.String() == name:
							forgotten.Add(1)
						default:
							t.Errorf("the answer of %s came from %s, expected %s", name, from, serviceOf[name])
							return
						}
						replies.Add(1)
					}
				})
			}
			time.Sleep(time.Second)
			stop.Store(true)
			senders.Wait()
			if err := unix.Shutdown(s.Fd, unix.SHUT_RD); err != nil && err != unix.ENOTCONN { // ends who waits for an answer
				t.Error(err)
			}
			receivers.Wait()
			if replies.Load() < 100 {
				t.Errorf("only %d replies arrived", replies.Load())
			}
			t.Logf("%d answers, %d of which were forgotten Services'", replies.Load(), forgotten.Load())
		})
	}
}
