package datapath

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Without endpoints an application hears at once that the connection is refused.
func TestSocketRefused(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.sync(t, bothOf(web4), bothOf(web6))
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			if err := r.socket(t, way.ipv6, unix.SOCK_STREAM).connect(way.to); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("connect by TCP: %v", err)
			}
			s := r.socket(t, way.ipv6, unix.SOCK_DGRAM)
			if err := s.connect(way.to); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("connect by UDP: %v", err)
			}
			if err := unix.Sendto(s.fd, []byte("?"), 0, sockaddr(way.to)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("send by UDP: %v", err)
			}
		})
	}
	if n := r.count(t); n.Connections != 0 || n.Rejected != 9 {
		t.Errorf("counted are %+v, expected 9 refused", n)
	}
}

// With a traffic policy Local and no endpoint here, a pod's packets are from_pod's to drop; the node's own must not leave.
func TestSocketWithoutLocalBackend(t *testing.T) {
	testenv.Root(t)
	for _, node := range []bool{false, true} {
		t.Run(map[bool]string{false: "pod", true: "node"}[node], func(t *testing.T) {
			t.Parallel()
			r := newSocketRig(t, node)
			ports := bothOf(web4)
			for i := range ports {
				ports[i].Entries[0].Inside.Without = service.Drop
			}
			r.sync(t, ports)
			want := unix.ENETUNREACH // the address as it is, which has no route here
			if node {
				want = unix.EPERM
			}
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
				if err := r.socket(t, false, kind).connect(web4); !errors.Is(err, want) {
					t.Errorf("connect: %v, expected %v", err, want)
				}
			}
			s := r.socket(t, false, unix.SOCK_DGRAM)
			if err := unix.Sendto(s.fd, []byte("?"), 0, sockaddr(web4)); !errors.Is(err, want) {
				t.Errorf("send: %v, expected %v", err, want)
			}
		})
	}
}

// What answers on the outside only is not for pods.
func TestSocketPassed(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, true)
	r.serveAll(t)
	p := portOf(web4, cluster.TCP)
	p.Entries[0].Inside.Without = service.Pass
	p.Entries[0].Outside = service.Backends{Addresses: []netip.AddrPort{netip.AddrPortFrom(backends4[0], backendPort)}}
	r.sync(t, []service.Port{p})
	if err := r.socket(t, false, unix.SOCK_STREAM).connect(web4); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect: %v", err)
	}
}

// Loopback addresses are the node's own: a pod's are its own business.
func TestSocketLoopback(t *testing.T) {
	testenv.Root(t)
	for _, node := range []bool{false, true} {
		t.Run(map[bool]string{false: "pod", true: "node"}[node], func(t *testing.T) {
			t.Parallel()
			r := newSocketRig(t, node)
			r.serveAll(t)
			local4, local6 := netip.MustParseAddrPort("127.0.0.1:30080"), netip.MustParseAddrPort("[::1]:30080")
			r.sync(t, bothOf(local4, backends4[0]), bothOf(local6, backends6[0]))
			for _, to := range []netip.AddrPort{local4, local6, mapped(local4)} {
				s := r.socket(t, !to.Addr().Is4(), unix.SOCK_STREAM)
				switch err := s.connect(to); {
				case node && err != nil:
					t.Errorf("connect to %s: %v", to, err)
				case node && s.peer(t) != to:
					t.Errorf("the peer is %s, expected %s", s.peer(t), to)
				case node:
					s.ask(t)
				case !errors.Is(err, unix.ECONNREFUSED):
					t.Errorf("connect to %s: %v", to, err)
				}
			}
			if n := r.count(t); node != (n.Connections == 3) || n.Rejected != 0 {
				t.Errorf("counted are %+v", n)
			}
		})
	}
}

// Source ranges are checked where the source is known; the node itself may use all its Services.
func TestSocketSources(t *testing.T) {
	testenv.Root(t)
	for _, node := range []bool{false, true} {
		t.Run(map[bool]string{false: "pod", true: "node"}[node], func(t *testing.T) {
			t.Parallel()
			r := newSocketRig(t, node)
			r.serveAll(t)
			p := portOf(web4, cluster.TCP, backends4[0])
			p.Entries[0].Sources = []netip.Prefix{prefix("192.0.2.0/24")}
			r.sync(t, []service.Port{p})
			err := r.socket(t, false, unix.SOCK_STREAM).connect(web4)
			if node && err != nil || !node && !errors.Is(err, unix.ENETUNREACH) {
				t.Errorf("connect: %v", err)
			}
		})
	}
}

// A client stays with its backend for as long as the Service says after its last connection, whatever the set becomes.
func TestSocketAffinity(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	sync := func(backends ...netip.Addr) {
		ports := bothOf(web4, backends...)
		for i := range ports {
			ports[i].Entries[0].Affinity = time.Hour
		}
		r.sync(t, ports)
	}
	connected := func() string {
		s := r.socket(t, false, unix.SOCK_STREAM)
		if err := s.connect(web4); err != nil {
			t.Fatal(err)
		}
		return s.ask(t)
	}
	sync(backends4...)
	first := connected()
	stays := func(what string) {
		t.Helper()
		for range 30 { // by chance once in 2^30
			if name := connected(); name != first {
				t.Fatalf("%s: %s answered, expected %s", what, name, first)
			}
		}
	}
	stays("the same set")
	had := netip.MustParseAddrPort(first).Addr()
	others := slices.DeleteFunc(slices.Clone(backends4), func(b netip.Addr) bool { return b == had })
	for i := range 20 { // by chance once in 2^20
		sync(had, others[i%2])
		if name := connected(); name != first {
			t.Fatalf("%s answered, expected %s, which the new set has too", name, first)
		}
	}

	// Later than the Service says, any will do: let the last connection be that long ago.
	r.ageAffinities(t, 59*time.Minute)
	stays("just in time")
	if age := r.affinityAge(t); age > time.Minute {
		t.Errorf("the last connection is said to be %s ago", age)
	}
	names := map[string]bool{}
	for range 64 {
		r.ageAffinities(t, 61*time.Minute)
		names[connected()] = true
	}
	if len(names) != 2 {
		t.Errorf("after the timeout only %v answered", names)
	}

	first = connected()
	had = netip.MustParseAddrPort(first).Addr()
	sync(slices.DeleteFunc(slices.Clone(backends4), func(b netip.Addr) bool { return b == had })...)
	next := connected()
	if next == first {
		t.Errorf("%s answered, which the Service does not have any more", next)
	}
	first = next
	stays("after the backend went")
}

// ageAffinities lets each client's last connection have been that long ago.
func (r *socketRig) ageAffinities(tb testing.TB, by time.Duration) {
	tb.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		tb.Fatal(err)
	}
	m := r.d.objects.maps.Affinities
	var key bpfClient
	var value bpfAffinity
	aged := 0
	for all := m.Iterate(); all.Next(&key, &value); aged++ {
		value.Used = uint64(now.Nano()) - uint64(by)
		if err := m.Update(key, value, ebpf.UpdateExist); err != nil {
			tb.Fatal(err)
		}
	}
	if aged == 0 {
		tb.Fatal("nobody has an affinity")
	}
}

// affinityAge is how long ago the last connection of the only client was.
func (r *socketRig) affinityAge(tb testing.TB) time.Duration {
	tb.Helper()
	now, err := Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	var key bpfClient
	var value bpfAffinity
	all := r.d.objects.maps.Affinities.Iterate()
	if !all.Next(&key, &value) {
		tb.Fatal("nobody has an affinity")
	}
	return time.Duration(int64(now) - int64(value.Used))
}

// One unconnected socket, many Services: answers are those of the right one, and each keeps its backend.
func TestSocketSendsToMany(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	var ports [][]service.Port
	var all []netip.AddrPort
	for i := range remembered {
		to := netip.AddrPortFrom(dns4.Addr(), uint16(1000+i))
		all = append(all, to)
		// Answers of one address and port can be one Service's only.
		r.serveName(t, netip.AddrPortFrom(backends4[0], uint16(2000+i)))
		r.serveName(t, netip.AddrPortFrom(backends4[1], uint16(2000+i)))
		p := portOf(to, cluster.UDP)
		for _, b := range backends4[:2] {
			p.Entries[0].Inside.Addresses = append(p.Entries[0].Inside.Addresses, netip.AddrPortFrom(b, uint16(2000+i)))
		}
		ports = append(ports, []service.Port{p})
	}
	r.sync(t, ports...)
	for _, ipv6 := range []bool{false, true} {
		s := r.socket(t, ipv6, unix.SOCK_DGRAM)
		had := map[netip.AddrPort]string{}
		for range 10 {
			for _, to := range all {
				if ipv6 {
					to = mapped(to)
				}
				name, from := s.askAt(t, to)
				if from != to {
					t.Fatalf("the answer of %s came from %s", to, from)
				}
				if had[to] != "" && had[to] != name {
					t.Fatalf("%s answered for %s after %s", name, to, had[to])
				}
				had[to] = name
			}
		}
		// Answers that come when the socket has sent elsewhere since.
		for _, to := range all {
			if ipv6 {
				to = mapped(to)
			}
			if err := unix.Sendto(s.fd, []byte("?"), 0, sockaddr(to)); err != nil {
				t.Fatal(err)
			}
		}
		for range all {
			name, from, err := s.hear()
			if err != nil {
				t.Fatal(err)
			}
			if had[from] != name {
				t.Errorf("%s answered as %s, whose backend is %q", name, from, had[from])
			}
		}
	}
	if n := r.count(t); n.Connections != uint64(2*remembered) {
		t.Errorf("counted are %+v, expected a connection for each socket and Service", n)
	}
}

// An unconnected socket stays with its backend only for as long as the Service has that.
func TestSocketSendFollowsSet(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	r.sync(t, bothOf(web4, backends4[0]))
	s := r.socket(t, false, unix.SOCK_DGRAM)
	ask := func(want netip.Addr) {
		t.Helper()
		if name, from := s.askAt(t, web4); name != netip.AddrPortFrom(want, backendPort).String() || from != web4 {
			t.Fatalf("%s answered as %s, expected %s", name, from, want)
		}
	}
	ask(backends4[0])
	r.sync(t, bothOf(web4, backends4...))
	for range 20 { // by chance once in 3^20
		ask(backends4[0])
	}
	r.sync(t, bothOf(web4, backends4[2]))
	ask(backends4[2])
	r.sync(t, bothOf(web4))
	if err := unix.Sendto(s.fd, []byte("?"), 0, sockaddr(web4)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("send without backends: %v", err)
	}
	r.sync(t)
	if err := unix.Sendto(s.fd, []byte("?"), 0, sockaddr(web4)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("send without a Service: %v", err)
	}
}

// A socket of IPv6 alone reaches no Service of IPv4, and what it hears stays as it is.
func TestSocketIPv6Only(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	r.sync(t, bothOf(web4, backends4[0]), bothOf(web6, backends6[0]))
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		s := r.socket(t, true, kind)
		if err := unix.SetsockoptInt(s.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			t.Fatal(err)
		}
		if err := s.connect(mapped(web4)); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("connect to a Service of IPv4: %v", err)
		}
		if err := s.connect(web6); err != nil {
			t.Fatal(err)
		}
		if peer := s.peer(t); peer != web6 {
			t.Errorf("the peer is %s", peer)
		}
		s.ask(t)
	}
}

// Sockets that are bound to an address or a port connect with these.
func TestSocketBound(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	r.sync(t, bothOf(web4, backends4[0]), bothOf(web6, backends6[0]))
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		for _, c := range []struct{ own, to netip.AddrPort }{
			{netip.AddrPortFrom(backends4[2], 7777), web4}, {netip.AddrPortFrom(backends6[2], 7777), web6},
		} {
			s := r.socket(t, c.own.Addr().Is6(), kind)
			if err := unix.Bind(s.fd, sockaddr(c.own)); err != nil {
				t.Fatal(err)
			}
			if err := s.connect(c.to); err != nil {
				t.Fatal(err)
			}
			s.ask(t)
			own, err := unix.Getsockname(s.fd)
			if err != nil {
				t.Fatal(err)
			}
			if addrPort(own) != c.own || s.peer(t) != c.to {
				t.Errorf("the socket is %s with the peer %s", addrPort(own), s.peer(t))
			}
		}
	}
}
