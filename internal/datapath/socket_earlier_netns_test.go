package datapath

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// send sends a question without waiting for the answer.
func (s socket) send(tb testing.TB, to netip.AddrPort) {
	tb.Helper()
	if err := unix.Sendto(s.fd, []byte("?"), 0, sockaddr(to)); err != nil {
		tb.Fatalf("send to %s: %v", to, err)
	}
}

// mustHear is hear for an answer that has to come.
func (s socket) mustHear(tb testing.TB) (name string, from netip.AddrPort) {
	tb.Helper()
	name, from, err := s.hear()
	if err != nil {
		tb.Fatal(err)
	}
	return name, from
}

// Sockets do not share the memory of their earlier Services: others, however many there are, do not make a socket forget its own.
func TestSocketSendAmongOthers(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	// Nobody listens at the backend of the Services of the others, so that the servers of this one's are not busy.
	nobody := netip.AddrPortFrom(backends4[0], 9)
	var busy [2]netip.AddrPort
	var ports []service.Port
	for i := range busy {
		busy[i] = netip.AddrPortFrom(dns4.Addr(), uint16(1000+i))
		p := portOf(busy[i], cluster.UDP)
		p.Entries[0].Inside.Addresses = []netip.AddrPort{nobody}
		ports = append(ports, p)
	}
	r.sync(t, bothOf(web4, backends4[:2]...), bothOf(dns4, backends4[2]), ports)
	s := r.socket(t, false, unix.SOCK_DGRAM)
	had, _ := s.askAt(t, web4)
	s.send(t, web4)
	s.send(t, dns4)

	const others = 12000 // each of which changes its Service twice
	r.in(t, func() error {
		for range others {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			for _, to := range []netip.AddrPort{busy[0], busy[1], busy[0]} {
				socket{fd}.send(t, to)
			}
			if err := unix.Close(fd); err != nil {
				return err
			}
		}
		return nil
	})
	from := map[netip.AddrPort]int{}
	for range 2 {
		_, a := s.mustHear(t)
		from[a]++
	}
	if from[web4] != 1 || from[dns4] != 1 {
		t.Errorf("the answers came from %v, expected one of each of %s and %s", from, web4, dns4)
	}
	if name, _ := s.askAt(t, web4); name != had {
		t.Errorf("%s answered after %s", name, had)
	}
}

// manyServices are Services of UDP, each with one backend, whose name tells which one has answered.
func (r *socketRig) manyServices(tb testing.TB, n int) (all []netip.AddrPort, serviceOf map[string]netip.AddrPort) {
	tb.Helper()
	var ports [][]service.Port
	serviceOf = map[string]netip.AddrPort{}
	for i := range n {
		to := netip.AddrPortFrom(dns4.Addr(), uint16(1000+i))
		backend := netip.AddrPortFrom(backends4[i%len(backends4)], uint16(2000+i))
		r.serveName(tb, backend)
		p := portOf(to, cluster.UDP)
		p.Entries[0].Inside.Addresses = []netip.AddrPort{backend}
		ports = append(ports, []service.Port{p})
		all = append(all, to)
		serviceOf[backend.String()] = to
	}
	r.sync(tb, ports...)
	return all, serviceOf
}

// remembered is how many Services a socket remembers: the last one and those before it.
var remembered = 1 + len(bpfSockUdpEntries{}.Entry)

// A socket that uses more Services than it remembers forgets the one that it used longest ago, and no other one.
func TestSocketSendForgetsOldest(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	all, serviceOf := r.manyServices(t, remembered+2)
	s := r.socket(t, false, unix.SOCK_DGRAM)
	// Used longest ago is not first used: 0 is used again before there are too many, and 1 and 2 are what goes.
	for _, to := range append(append(append([]netip.AddrPort{}, all[:3]...), all[0]), all[3:]...) {
		s.send(t, to)
	}
	for range len(all) + 1 {
		name, from := s.mustHear(t)
		want := serviceOf[name]
		if want == all[1] || want == all[2] {
			want = netip.MustParseAddrPort(name)
		}
		if from != want {
			t.Errorf("the answer of %s came from %s, expected %s", name, from, want)
		}
	}
}

// A socket that sends to a backend itself hears the backend; its other Services' answers, also those that are still to come, stay these Services'.
func TestSocketSendToBackend(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	all, serviceOf := r.manyServices(t, 3)
	backendOf := map[netip.AddrPort]netip.AddrPort{}
	for name, to := range serviceOf {
		backendOf[to] = netip.MustParseAddrPort(name)
	}
	for i, direct := range all { // the last Service, and those before
		s := r.socket(t, false, unix.SOCK_DGRAM)
		for _, to := range all {
			s.send(t, to)
		}
		s.send(t, backendOf[direct])
		for range len(all) + 1 {
			name, from := s.mustHear(t)
			want := serviceOf[name]
			if want == direct {
				want = backendOf[direct]
			}
			if from != want {
				t.Errorf("sent to the backend of Service %d: the answer of %s came from %s, expected %s", i, name, from, want)
			}
		}
		for _, to := range all { // the Services' again
			if _, from := s.askAt(t, to); from != to {
				t.Errorf("sent to the backend of Service %d, and to %s: the answer came from %s", i, to, from)
			}
		}
	}
}

// Backends of earlier Services are used again while the Service has them, the last one first; the answers of others remain the Service's.
func TestSocketSendEarlierSets(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	dns := bothOf(dns4, backends4[2])
	s := r.socket(t, false, unix.SOCK_DGRAM)
	ask := func(to netip.AddrPort, want netip.Addr) {
		t.Helper()
		if name, from := s.askAt(t, to); name != netip.AddrPortFrom(want, backendPort).String() || from != to {
			t.Fatalf("%s answered as %s, expected %s", name, from, want)
		}
	}
	r.sync(t, bothOf(web4, backends4[0]), dns)
	ask(web4, backends4[0])
	ask(dns4, backends4[2])
	s.send(t, web4)
	s.send(t, dns4)
	r.sync(t, bothOf(web4, backends4[1]), dns) // web4's is gone, with an answer under way
	s.send(t, web4)
	from := map[netip.AddrPort]int{}
	for range 3 {
		_, a := s.mustHear(t)
		from[a]++
	}
	if from[web4] != 2 || from[dns4] != 1 {
		t.Errorf("the answers came from %v, expected two of %s and one of %s", from, web4, dns4)
	}
	ask(web4, backends4[1])
	ask(dns4, backends4[2])
	r.sync(t, bothOf(web4, backends4[:2]...), dns) // the first one is there again
	for range 20 {                                 // by chance once in 2^20
		ask(web4, backends4[1])
		ask(dns4, backends4[2])
	}
}

// Threads that send and receive at one socket at the same time: each answer is its Service's, or if that is forgotten, the backend's.
func TestSocketSendAtOnce(t *testing.T) {
	testenv.Root(t)
	for name, services := range map[string]int{"all remembered": remembered, "some forgotten": 3 * remembered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSocketRig(t, false)
			all, serviceOf := r.manyServices(t, services)
			s := r.socket(t, false, unix.SOCK_DGRAM)
			var stop atomic.Bool
			var heard, forgotten atomic.Int64
			var senders, receivers sync.WaitGroup
			for i := range 3 {
				senders.Go(func() {
					for at := i; !stop.Load(); at += 1 + 2*i {
						if err := unix.Sendto(s.fd, []byte("?"), 0, sockaddr(all[at%len(all)])); err != nil {
							t.Errorf("send: %v", err)
							return
						}
					}
				})
				receivers.Go(func() {
					for {
						name, from, err := s.hear()
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
						heard.Add(1)
					}
				})
			}
			time.Sleep(time.Second)
			stop.Store(true)
			senders.Wait()
			if err := unix.Shutdown(s.fd, unix.SHUT_RD); err != nil && err != unix.ENOTCONN { // ends who waits for an answer
				t.Error(err)
			}
			receivers.Wait()
			if heard.Load() < 100 {
				t.Errorf("only %d answers were heard", heard.Load())
			}
			t.Logf("%d answers, %d of which were forgotten Services'", heard.Load(), forgotten.Load())
		})
	}
}
