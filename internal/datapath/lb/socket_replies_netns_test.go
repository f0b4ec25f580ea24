package lb_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// Without endpoints an application hears at once that the connection is refused.
func TestSocketRejected(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.Sync(t, netlab.BothOf(netlab.Web4), netlab.BothOf(netlab.Web6))
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			if err := r.Socket(t, way.ipv6, unix.SOCK_STREAM).Connect(way.to); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("connect by TCP: %v", err)
			}
			s := r.Socket(t, way.ipv6, unix.SOCK_DGRAM)
			if err := s.Connect(way.to); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("connect by UDP: %v", err)
			}
			if err := unix.Sendto(s.Fd, []byte("?"), 0, netlab.Sockaddr(way.to)); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("send by UDP: %v", err)
			}
		})
	}
	if n := countServices(r, t); n.Connections != 0 || n.Rejected != 9 {
		t.Errorf("counted are %+v, expected 9 refused", n)
	}
}

// With a traffic policy Local and no endpoint here, a pod's packets are from_pod's to drop; the node's own must not leave.
func TestSocketWithoutLocalBackend(t *testing.T) {
	testenv.Root(t)
	for _, node := range []bool{false, true} {
		t.Run(map[bool]string{false: "pod", true: "node"}[node], func(t *testing.T) {
			t.Parallel()
			r := netlab.NewSockets(t, node)
			ports := netlab.BothOf(netlab.Web4)
			for i := range ports {
				ports[i].Entries[0].Internal.Without = service.Drop
			}
			r.Sync(t, ports)
			want := unix.ENETUNREACH // the address as it is, which has no route here
			if node {
				want = unix.EPERM
			}
			for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
				if err := r.Socket(t, false, kind).Connect(netlab.Web4); !errors.Is(err, want) {
					t.Errorf("connect: %v, expected %v", err, want)
				}
			}
			s := r.Socket(t, false, unix.SOCK_DGRAM)
			if err := unix.Sendto(s.Fd, []byte("?"), 0, netlab.Sockaddr(netlab.Web4)); !errors.Is(err, want) {
				t.Errorf("send: %v, expected %v", err, want)
			}
		})
	}
}

// What answers on the outside only is not for pods.
func TestSocketPassed(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, true)
	r.ServeAll(t)
	p := netlab.PortOf(netlab.Web4, cluster.TCP)
	p.Entries[0].Internal.Without = service.Pass
	p.Entries[0].External = service.Backends{Addresses: []netip.AddrPort{netip.AddrPortFrom(netlab.Backends4[0], netlab.BackendPort)}}
	r.Sync(t, []service.Port{p})
	if err := r.Socket(t, false, unix.SOCK_STREAM).Connect(netlab.Web4); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect: %v", err)
	}
}

// Loopback addresses are the node's own: a pod's are its own business.
func TestSocketLoopback(t *testing.T) {
	testenv.Root(t)
	for _, node := range []bool{false, true} {
		t.Run(map[bool]string{false: "pod", true: "node"}[node], func(t *testing.T) {
			t.Parallel()
			r := netlab.NewSockets(t, node)
			r.ServeAll(t)
			local4, local6 := netip.MustParseAddrPort("127.0.0.1:30080"), netip.MustParseAddrPort("[::1]:30080")
			r.Sync(t, netlab.BothOf(local4, netlab.Backends4[0]), netlab.BothOf(local6, netlab.Backends6[0]))
			for _, to := range []netip.AddrPort{local4, local6, netlab.Mapped(local4)} {
				s := r.Socket(t, !to.Addr().Is4(), unix.SOCK_STREAM)
				switch err := s.Connect(to); {
				case node && err != nil:
					t.Errorf("connect to %s: %v", to, err)
				case node && s.Peer(t) != to:
					t.Errorf("the peer is %s, expected %s", s.Peer(t), to)
				case node:
					s.Ask(t)
				case !errors.Is(err, unix.ECONNREFUSED):
					t.Errorf("connect to %s: %v", to, err)
				}
			}
			if n := countServices(r, t); node != (n.Connections == 3) || n.Rejected != 0 {
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
			r := netlab.NewSockets(t, node)
			r.ServeAll(t)
			p := netlab.PortOf(netlab.Web4, cluster.TCP, netlab.Backends4[0])
			p.Entries[0].Sources = []netip.Prefix{fixtures.Prefix("192.0.2.0/24")}
			r.Sync(t, []service.Port{p})
			err := r.Socket(t, false, unix.SOCK_STREAM).Connect(netlab.Web4)
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
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	sync := func(backends ...netip.Addr) {
		ports := netlab.BothOf(netlab.Web4, backends...)
		for i := range ports {
			ports[i].Entries[0].Affinity = time.Hour
		}
		r.Sync(t, ports)
	}
	connected := func() string {
		s := r.Socket(t, false, unix.SOCK_STREAM)
		if err := s.Connect(netlab.Web4); err != nil {
			t.Fatal(err)
		}
		return s.Ask(t)
	}
	sync(netlab.Backends4...)
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
	others := slices.DeleteFunc(slices.Clone(netlab.Backends4), func(b netip.Addr) bool { return b == had })
	for i := range 20 { // by chance once in 2^20
		sync(had, others[i%2])
		if name := connected(); name != first {
			t.Fatalf("%s answered, expected %s, which the new set has too", name, first)
		}
	}

	// Later than the Service says, any will do: let the last connection be that long ago.
	ageAffinities(r, t, 59*time.Minute)
	stays("just in time")
	if age := affinityAge(r, t); age > time.Minute {
		t.Errorf("the last connection is said to be %s ago", age)
	}
	names := map[string]bool{}
	for range 64 {
		ageAffinities(r, t, 61*time.Minute)
		names[connected()] = true
	}
	if len(names) != 2 {
		t.Errorf("after the timeout only %v answered", names)
	}

	first = connected()
	had = netip.MustParseAddrPort(first).Addr()
	sync(slices.DeleteFunc(slices.Clone(netlab.Backends4), func(b netip.Addr) bool { return b == had })...)
	next := connected()
	if next == first {
		t.Errorf("%s answered, which the Service does not have any more", next)
	}
	first = next
	stays("after the backend went")
}

// ageAffinities lets each client's last connection have been that long ago.
func ageAffinities(r *netlab.Sockets, tb testing.TB, by time.Duration) {
	tb.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		tb.Fatal(err)
	}
	m := r.D.Objects.Maps.Affinities
	var key bpf.Client
	var value bpf.Affinity
	aged := 0
	for all := m.Iterate(); all.Next(&key, &value); aged++ {
		value.Used = uint64(now.Nano()) - uint64(by)
		if err := m.Update(key, value, ebpf.UpdateExist); err != nil {
			tb.Fatal(err)
		}
	}
	if aged == 0 {
		tb.Fatal("no affinity")
	}
}

// affinityAge is how long ago the last connection of the only client was.
func affinityAge(r *netlab.Sockets, tb testing.TB) time.Duration {
	tb.Helper()
	now, err := table.Monotonic()
	if err != nil {
		tb.Fatal(err)
	}
	var key bpf.Client
	var value bpf.Affinity
	all := r.D.Objects.Maps.Affinities.Iterate()
	if !all.Next(&key, &value) {
		tb.Fatal("no affinity")
	}
	return time.Duration(int64(now) - int64(value.Used))
}

// One unconnected socket, many Services: answers are those of the right one, and each keeps its backend.
func TestSocketSendsToMany(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	var ports [][]service.Port
	var all []netip.AddrPort
	for i := range remembered {
		to := netip.AddrPortFrom(netlab.Dns4.Addr(), uint16(1000+i))
		all = append(all, to)
		// Answers of one address and port can be one Service's only.
		r.ServeName(t, netip.AddrPortFrom(netlab.Backends4[0], uint16(2000+i)))
		r.ServeName(t, netip.AddrPortFrom(netlab.Backends4[1], uint16(2000+i)))
		p := netlab.PortOf(to, cluster.UDP)
		for _, b := range netlab.Backends4[:2] {
			p.Entries[0].Internal.Addresses = append(p.Entries[0].Internal.Addresses, netip.AddrPortFrom(b, uint16(2000+i)))
		}
		ports = append(ports, []service.Port{p})
	}
	r.Sync(t, ports...)
	for _, ipv6 := range []bool{false, true} {
		s := r.Socket(t, ipv6, unix.SOCK_DGRAM)
		had := map[netip.AddrPort]string{}
		for range 10 {
			for _, to := range all {
				if ipv6 {
					to = netlab.Mapped(to)
				}
				name, from := s.AskAt(t, to)
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
				to = netlab.Mapped(to)
			}
			if err := unix.Sendto(s.Fd, []byte("?"), 0, netlab.Sockaddr(to)); err != nil {
				t.Fatal(err)
			}
		}
		for range all {
			name, from, err := s.Hear()
			if err != nil {
				t.Fatal(err)
			}
			if had[from] != name {
				t.Errorf("%s answered as %s, whose backend is %q", name, from, had[from])
			}
		}
	}
	if n := countServices(r, t); n.Connections != uint64(2*remembered) {
		t.Errorf("counted are %+v, expected a connection for each socket and Service", n)
	}
}

// An unconnected socket stays with its backend only for as long as the Service has that.
func TestSocketSendFollowsSet(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]))
	s := r.Socket(t, false, unix.SOCK_DGRAM)
	ask := func(want netip.Addr) {
		t.Helper()
		if name, from := s.AskAt(t, netlab.Web4); name != netip.AddrPortFrom(want, netlab.BackendPort).String() || from != netlab.Web4 {
			t.Fatalf("%s answered as %s, expected %s", name, from, want)
		}
	}
	ask(netlab.Backends4[0])
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4...))
	for range 20 { // by chance once in 3^20
		ask(netlab.Backends4[0])
	}
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[2]))
	ask(netlab.Backends4[2])
	r.Sync(t, netlab.BothOf(netlab.Web4))
	if err := unix.Sendto(s.Fd, []byte("?"), 0, netlab.Sockaddr(netlab.Web4)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("send without backends: %v", err)
	}
	r.Sync(t)
	if err := unix.Sendto(s.Fd, []byte("?"), 0, netlab.Sockaddr(netlab.Web4)); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("send without a Service: %v", err)
	}
}

// A socket of IPv6 alone reaches no Service of IPv4, and what it hears stays as it is.
func TestSocketIPv6Only(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(netlab.Web6, netlab.Backends6[0]))
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		s := r.Socket(t, true, kind)
		if err := unix.SetsockoptInt(s.Fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			t.Fatal(err)
		}
		if err := s.Connect(netlab.Mapped(netlab.Web4)); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("connect to a Service of IPv4: %v", err)
		}
		if err := s.Connect(netlab.Web6); err != nil {
			t.Fatal(err)
		}
		if peer := s.Peer(t); peer != netlab.Web6 {
			t.Errorf("the peer is %s", peer)
		}
		s.Ask(t)
	}
}

// Sockets that are bound to an address or a port connect with these.
func TestSocketBound(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(netlab.Web6, netlab.Backends6[0]))
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		for _, c := range []struct{ own, to netip.AddrPort }{
			{netip.AddrPortFrom(netlab.Backends4[2], 7777), netlab.Web4}, {netip.AddrPortFrom(netlab.Backends6[2], 7777), netlab.Web6},
		} {
			s := r.Socket(t, c.own.Addr().Is6(), kind)
			if err := unix.Bind(s.Fd, netlab.Sockaddr(c.own)); err != nil {
				t.Fatal(err)
			}
			if err := s.Connect(c.to); err != nil {
				t.Fatal(err)
			}
			s.Ask(t)
			own, err := unix.Getsockname(s.Fd)
			if err != nil {
				t.Fatal(err)
			}
			if netlab.AddrPort(own) != c.own || s.Peer(t) != c.to {
				t.Errorf("the socket is %s with the peer %s", netlab.AddrPort(own), s.Peer(t))
			}
		}
	}
}
