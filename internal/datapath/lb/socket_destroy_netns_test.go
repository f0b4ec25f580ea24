package lb_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// The ways to destroy sockets: by the Service that they went through, and by their peer alone.
var destroyWays = []struct {
	name  string
	older bool // a kernel before 6.5
}{{"by Service", false}, {"by peer", true}}

// needsDestroyer ends a test of a way that this kernel does not have.
func needsDestroyer(r *netlab.Sockets, tb testing.TB, older bool) {
	tb.Helper()
	if older {
		return
	}
	err := r.D.Sockets.Probe()
	if errors.Is(err, ebpf.ErrNotSupported) {
		testenv.Missing(tb, "not on this kernel: bpf_sock_destroy (Linux 6.5)")
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func destroy(r *netlab.Sockets, tb testing.TB, older bool, gone ...netip.AddrPort) int {
	tb.Helper()
	if older {
		r.D.Sockets.WithoutIterator()
	}
	n, err := r.D.Sockets.DestroyUDP([]string{r.Path()}, gone)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// destroyed tells, once, whether the kernel has an error for the socket's user and has taken its association away.
func destroyed(s netlab.Socket, tb testing.TB) bool {
	tb.Helper()
	pending, err := unix.GetsockoptInt(s.Fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		tb.Fatal(err)
	}
	return unix.Errno(pending) == unix.ECONNABORTED
}

// When a backend goes away, sockets that are connected to it through a Service are destroyed; others are left alone.
func TestDestroyUDP(t *testing.T) {
	testenv.Root(t)
	for _, by := range destroyWays {
		t.Run(by.name, func(t *testing.T) {
			t.Parallel()
			r := netlab.NewSockets(t, false)
			needsDestroyer(r, t, by.older)
			r.ServeAll(t)
			r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]), netlab.BothOf(netlab.Web6, netlab.Backends6[0]), netlab.BothOf(netlab.Dns4, netlab.Backends4[1]))
			connected := func(ipv6 bool, kind int, to netip.AddrPort) netlab.Socket {
				t.Helper()
				s := r.Socket(t, ipv6, kind)
				if err := s.Connect(to); err != nil {
					t.Fatal(err)
				}
				s.Ask(t)
				return s
			}
			gone := []netip.AddrPort{netip.AddrPortFrom(netlab.Backends4[0], netlab.BackendPort), netip.AddrPortFrom(netlab.Backends6[0], netlab.BackendPort)}
			lost := map[string]netlab.Socket{
				"IPv4":        connected(false, unix.SOCK_DGRAM, netlab.Web4),
				"IPv6":        connected(true, unix.SOCK_DGRAM, netlab.Web6),
				"IPv4-mapped": connected(true, unix.SOCK_DGRAM, netlab.Mapped(netlab.Web4)),
			}
			direct := connected(false, unix.SOCK_DGRAM, gone[0])
			kept := map[string]netlab.Socket{
				"to another backend":                     connected(false, unix.SOCK_DGRAM, netlab.Dns4),
				"to another port":                        connected(false, unix.SOCK_DGRAM, netip.AddrPortFrom(netlab.Backends4[1], netlab.BackendPort)),
				"of TCP":                                 connected(false, unix.SOCK_STREAM, netlab.Web4),
				"connected elsewhere by now":             connected(false, unix.SOCK_DGRAM, netlab.Web4),
				"not connected any more":                 connected(false, unix.SOCK_DGRAM, netlab.Web4),
				"sent to the Service, but not connected": r.Socket(t, false, unix.SOCK_DGRAM),
			}
			if err := kept["connected elsewhere by now"].Connect(netip.AddrPortFrom(netlab.Backends4[2], netlab.BackendPort)); err != nil {
				t.Fatal(err)
			}
			if err := disconnect(kept["not connected any more"].Fd); err != nil {
				t.Fatal(err)
			}
			kept["sent to the Service, but not connected"].AskAt(t, netlab.Web4)

			want := len(lost)
			if by.older {
				want++ // direct
			}
			if n := destroy(r, t, by.older, gone...); n != want {
				t.Errorf("%d sockets were destroyed, expected %d", n, want)
			}
			for name, s := range lost {
				if !destroyed(s, t) {
					t.Errorf("the socket of %s was not", name)
				}
			}
			if destroyed(direct, t) != by.older {
				t.Errorf("the socket that is connected to the backend's own address: destroyed %t", !by.older)
			}
			for name, s := range kept {
				if destroyed(s, t) {
					t.Errorf("the socket %s was", name)
				}
			}

			// It connects again, to a backend that there is.
			r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[2]))
			s := lost["IPv4"]
			if err := s.Connect(netlab.Web4); err != nil {
				t.Fatal(err)
			}
			if name := s.Ask(t); name != netip.AddrPortFrom(netlab.Backends4[2], netlab.BackendPort).String() {
				t.Errorf("%s answered", name)
			}
			if n := destroy(r, t, by.older, gone...); n != 0 {
				t.Errorf("%d sockets were destroyed the second time", n)
			}
		})
	}
}

// What the kernel knows of gone backends is only what is said in the call, and only the named namespaces are searched.
func TestDestroyUDPOnlyWhatIsSaid(t *testing.T) {
	testenv.Root(t)
	for _, by := range destroyWays {
		t.Run(by.name, func(t *testing.T) {
			t.Parallel()
			r := netlab.NewSockets(t, false)
			needsDestroyer(r, t, by.older)
			r.ServeAll(t)
			r.Sync(t, netlab.BothOf(netlab.Web4, netlab.Backends4[0]))
			destroy(r, t, by.older, netip.AddrPortFrom(netlab.Backends4[0], netlab.BackendPort))
			s := r.Socket(t, false, unix.SOCK_DGRAM)
			if err := s.Connect(netlab.Web4); err != nil {
				t.Fatal(err)
			}
			if n := destroy(r, t, by.older, netip.AddrPortFrom(netlab.Backends4[1], netlab.BackendPort)); n != 0 || destroyed(s, t) {
				t.Errorf("%d sockets were destroyed for another backend", n)
			}
			n, err := r.D.Sockets.DestroyUDP([]string{netlab.NewNetns(t).Path(), filepath.Join(t.TempDir(), "nowhere")}, []netip.AddrPort{netip.AddrPortFrom(netlab.Backends4[0], netlab.BackendPort)})
			if err != nil || n != 0 || destroyed(s, t) {
				t.Errorf("%d sockets were destroyed in another namespace, %v", n, err)
			}
		})
	}
}
