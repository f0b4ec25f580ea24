package datapath

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/testenv"
)

// The ways to destroy sockets: by the Service that they went through, and by their peer alone.
var destroyWays = []struct {
	name  string
	older bool // a kernel before 6.5
}{{"by Service", false}, {"by peer", true}}

// needsDestroyer ends a test of a way that this kernel does not have.
func (r *socketRig) needsDestroyer(tb testing.TB, older bool) {
	tb.Helper()
	if older {
		return
	}
	err := r.d.Sockets.probe()
	if errors.Is(err, ebpf.ErrNotSupported) {
		testenv.Missing(tb, "not on this kernel: bpf_sock_destroy (Linux 6.5)")
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func (r *socketRig) destroy(tb testing.TB, older bool, gone ...netip.AddrPort) int {
	tb.Helper()
	if older {
		r.d.Sockets.withoutIterator()
	}
	n, err := r.d.Sockets.DestroyUDP([]string{r.path()}, gone)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// destroyed tells, once, whether the kernel has an error for the socket's user and has taken its association away.
func (s socket) destroyed(tb testing.TB) bool {
	tb.Helper()
	pending, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
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
			r := newSocketRig(t, false)
			r.needsDestroyer(t, by.older)
			r.serveAll(t)
			r.sync(t, bothOf(web4, backends4[0]), bothOf(web6, backends6[0]), bothOf(dns4, backends4[1]))
			connected := func(ipv6 bool, kind int, to netip.AddrPort) socket {
				t.Helper()
				s := r.socket(t, ipv6, kind)
				if err := s.connect(to); err != nil {
					t.Fatal(err)
				}
				s.ask(t)
				return s
			}
			gone := []netip.AddrPort{netip.AddrPortFrom(backends4[0], backendPort), netip.AddrPortFrom(backends6[0], backendPort)}
			lost := map[string]socket{
				"IPv4":        connected(false, unix.SOCK_DGRAM, web4),
				"IPv6":        connected(true, unix.SOCK_DGRAM, web6),
				"IPv4-mapped": connected(true, unix.SOCK_DGRAM, mapped(web4)),
			}
			direct := connected(false, unix.SOCK_DGRAM, gone[0])
			kept := map[string]socket{
				"to another backend":                     connected(false, unix.SOCK_DGRAM, dns4),
				"to another port":                        connected(false, unix.SOCK_DGRAM, netip.AddrPortFrom(backends4[1], backendPort)),
				"of TCP":                                 connected(false, unix.SOCK_STREAM, web4),
				"connected elsewhere by now":             connected(false, unix.SOCK_DGRAM, web4),
				"not connected any more":                 connected(false, unix.SOCK_DGRAM, web4),
				"sent to the Service, but not connected": r.socket(t, false, unix.SOCK_DGRAM),
			}
			if err := kept["connected elsewhere by now"].connect(netip.AddrPortFrom(backends4[2], backendPort)); err != nil {
				t.Fatal(err)
			}
			if err := disconnect(kept["not connected any more"].fd); err != nil {
				t.Fatal(err)
			}
			kept["sent to the Service, but not connected"].askAt(t, web4)

			want := len(lost)
			if by.older {
				want++ // direct
			}
			if n := r.destroy(t, by.older, gone...); n != want {
				t.Errorf("%d sockets were destroyed, expected %d", n, want)
			}
			for name, s := range lost {
				if !s.destroyed(t) {
					t.Errorf("the socket of %s was not", name)
				}
			}
			if direct.destroyed(t) != by.older {
				t.Errorf("the socket that is connected to the backend's own address: destroyed %t", !by.older)
			}
			for name, s := range kept {
				if s.destroyed(t) {
					t.Errorf("the socket %s was", name)
				}
			}

			// It connects again, to a backend that there is.
			r.sync(t, bothOf(web4, backends4[2]))
			s := lost["IPv4"]
			if err := s.connect(web4); err != nil {
				t.Fatal(err)
			}
			if name := s.ask(t); name != netip.AddrPortFrom(backends4[2], backendPort).String() {
				t.Errorf("%s answered", name)
			}
			if n := r.destroy(t, by.older, gone...); n != 0 {
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
			r := newSocketRig(t, false)
			r.needsDestroyer(t, by.older)
			r.serveAll(t)
			r.sync(t, bothOf(web4, backends4[0]))
			r.destroy(t, by.older, netip.AddrPortFrom(backends4[0], backendPort))
			s := r.socket(t, false, unix.SOCK_DGRAM)
			if err := s.connect(web4); err != nil {
				t.Fatal(err)
			}
			if n := r.destroy(t, by.older, netip.AddrPortFrom(backends4[1], backendPort)); n != 0 || s.destroyed(t) {
				t.Errorf("%d sockets were destroyed for another backend", n)
			}
			n, err := r.d.Sockets.DestroyUDP([]string{newPlace(t).path(), filepath.Join(t.TempDir(), "nowhere")}, []netip.AddrPort{netip.AddrPortFrom(backends4[0], backendPort)})
			if err != nil || n != 0 || s.destroyed(t) {
				t.Errorf("%d sockets were destroyed in another namespace, %v", n, err)
			}
		})
	}
}
