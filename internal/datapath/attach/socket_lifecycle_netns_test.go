package attach_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/attach"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/internal/netlab"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// While Services are replaced thousands of times, every connection reaches a backend of its own Service.
func TestSocketReplacement(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	one, two, three := netlab.Backends4[0], netlab.Backends4[1], netlab.Backends4[2]
	r.Sync(t, netlab.BothOf(netlab.Web4, one), netlab.BothOf(netlab.Dns4, three))

	var stop atomic.Bool
	var made atomic.Int64
	var clients sync.WaitGroup
	for _, c := range []struct {
		to   netip.AddrPort
		want []netip.Addr
	}{{netlab.Web4, []netip.Addr{one, two}}, {netlab.Dns4, []netip.Addr{three}}} {
		clients.Go(func() {
			r.In(t, func() error {
				for !stop.Load() {
					if err := connectOnce(c.to, c.want); err != nil {
						t.Errorf("after %d connections: %v", made.Load(), err)
						return nil
					}
					made.Add(1)
				}
				return nil
			})
		})
	}
	const replacements = 5000
	for i := range replacements {
		sets := [][]netip.Addr{{one}, {one, two}, {two}}
		set := append(netlab.BothOf(netlab.Web4, sets[i%3]...), netlab.BothOf(netlab.Dns4, three)...)
		// Ports that are added and removed let the kernel reuse the elements of other entries.
		extra := netlab.PortOf(netip.AddrPortFrom(netlab.Web4.Addr(), uint16(1000+i%7)), cluster.TCP, three)
		var removed []service.PortName
		if i%2 == 0 {
			set = append(set, extra)
		} else {
			removed = append(removed, extra.Name)
		}
		if err := r.D.Services.Apply(set, removed); err != nil {
			t.Error(err)
			break
		}
		if t.Failed() {
			break
		}
	}
	stop.Store(true)
	clients.Wait()
	if made.Load() < replacements/100 {
		t.Errorf("only %d connections were made", made.Load())
	}
	t.Logf("%d connections during %d replacements", made.Load(), replacements)
}

// connectOnce requests the backend's name from a Service by UDP and connects by TCP.
func connectOnce(to netip.AddrPort, want []netip.Addr) error {
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(udp)
	s := netlab.Socket{Fd: udp}
	if err := s.Connect(to); err != nil {
		return fmt.Errorf("connect by UDP: %w", err)
	}
	if _, err := unix.Write(udp, []byte("?")); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	name, _, err := s.Hear()
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if b, err := netip.ParseAddrPort(name); err != nil || !slices.Contains(want, b.Addr()) {
		return fmt.Errorf("%s answered for %s", name, to)
	}
	tcp, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(tcp)
	// Reset at close, so that thousands of connections do not keep ports in TIME_WAIT.
	if err := unix.SetsockoptLinger(tcp, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	if err := (netlab.Socket{Fd: tcp}).Connect(to); err != nil {
		return fmt.Errorf("connect by TCP: %w", err)
	}
	return nil
}

// The next agent takes over: connections continue, sockets keep their Services, and every connect meets the programs.
func TestSocketRestart(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	services := append(netlab.BothOf(netlab.Web4, netlab.Backends4...), netlab.BothOf(netlab.Dns4, netlab.Backends4[0])...)
	r.Sync(t, services)
	tcp, udp := r.Socket(t, false, unix.SOCK_STREAM), r.Socket(t, false, unix.SOCK_DGRAM)
	unconnected := r.Socket(t, false, unix.SOCK_DGRAM)
	if err := errors.Join(tcp.Connect(netlab.Web4), udp.Connect(netlab.Web4)); err != nil {
		t.Fatal(err)
	}
	askAt := func(to netip.AddrPort) string {
		t.Helper()
		name, from := unconnected.AskAt(t, to)
		if from != to {
			t.Errorf("the reply came from %s, expected %s", from, to)
		}
		return name
	}
	names := []string{tcp.Ask(t), udp.Ask(t), askAt(netlab.Web4), askAt(netlab.Dns4)}
	links := linkIDs(r, t)

	var stop atomic.Bool
	var client sync.WaitGroup
	client.Go(func() {
		r.In(t, func() error {
			for !stop.Load() {
				if err := connectOnce(netlab.Web4, netlab.Backends4); err != nil {
					t.Error(err)
					return nil
				}
			}
			return nil
		})
	})
	for range 3 {
		if err := r.D.Close(); err != nil {
			t.Fatal(err)
		}
		r.Open(t)
		r.Sync(t, services)
	}
	stop.Store(true)
	client.Wait()

	for _, s := range []netlab.Socket{tcp, udp} {
		if peer := s.Peer(t); peer != netlab.Web4 {
			t.Errorf("the peer is %s after restarts", peer)
		}
	}
	if after := []string{tcp.Ask(t), udp.Ask(t), askAt(netlab.Web4), askAt(netlab.Dns4)}; !slices.Equal(names, after) {
		t.Errorf("%v answered before, %v after restarts", names, after)
	}
	if now := linkIDs(r, t); !slices.Equal(links, now) {
		t.Errorf("links were %v and are %v: they were replaced", links, now)
	}
}

// linkIDs returns the kernel's IDs of the links at sockets.
func linkIDs(r *netlab.Sockets, tb testing.TB) []uint32 {
	tb.Helper()
	return netlab.PinnedLinkIDs(tb, load.SocketDir(r.Cfg.Root))
}

// The configuration determines where the programs are attached: at another cgroup, at none, and not at a removed one.
func TestSocketCgroups(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := netlab.NewSockets(t, false)
	r.ServeAll(t)
	services := netlab.BothOf(netlab.Web4, netlab.Backends4[0])
	r.Sync(t, services)
	first, second := r.Cgroup, netlab.NewThreadedCgroup(t)
	connects := func(cgroup string) error {
		r.Cgroup = cgroup
		return r.Socket(t, false, unix.SOCK_DGRAM).Connect(netlab.Web4)
	}
	restart := func(cfg config.Datapath) {
		t.Helper()
		if err := r.D.Close(); err != nil {
			t.Fatal(err)
		}
		r.Cfg = cfg
		r.Open(t)
		r.Sync(t, services)
	}
	if err := errors.Join(connects(first), r.D.CheckSockets()); err != nil {
		t.Error(err)
	}
	if err := connects(second); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect in another cgroup: %v", err)
	}

	moved := r.Cfg
	moved.Cgroup = second
	restart(moved)
	if err := errors.Join(connects(second), r.D.CheckSockets()); err != nil {
		t.Error(err)
	}
	r.Cgroup = first
	awaitUntouched(r, t)
	if got, err := r.D.SocketPrograms(); err != nil || len(got) != len(bpf.SocketProgramNames) {
		t.Errorf("%v are attached, %v", got, err)
	}

	// The cgroup is removed without the agent: the check reports it, and attaching again repairs it.
	gone := newRemovableCgroup(t)
	moved.Cgroup = gone
	restart(moved)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.D.CheckSockets(); err == nil || !strings.Contains(err.Error(), "its link is detached") {
		t.Errorf("the check says %v", err)
	}
	if err := errors.Join(r.D.AttachSockets(), r.D.CheckSockets()); err != nil {
		t.Error(err)
	}

	// Without Services the next agent detaches the programs.
	none := moved
	none.Services = false
	if err := r.D.Close(); err != nil {
		t.Fatal(err)
	}
	r.Cfg = none
	r.Open(t)
	if got, err := r.D.SocketPrograms(); err != nil || len(got) != 0 {
		t.Errorf("%v are attached still, %v", got, err)
	}
	if err := r.D.CheckSockets(); err != nil {
		t.Error(err)
	}
}

// newRemovableCgroup creates a cgroup that the test may remove.
func newRemovableCgroup(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp(netlab.OwnCgroup(tb), "beeline-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.Remove(dir) })
	return dir
}

// A directory that is not on cgroup2 is rejected, and the error says what to mount.
func TestSocketsNeedCgroup2(t *testing.T) {
	testenv.Root(t)
	d, err := harness.Open(config.Datapath{Root: fixtures.Bpffs(t), Services: true, Cgroup: t.TempDir()}, nil, fixtures.TestLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := harness.Unload(d); err != nil {
			t.Error(err)
		}
	}()
	if err := d.AttachSockets(); err == nil || !strings.Contains(err.Error(), "is not on a cgroup2 file system") {
		t.Errorf("error is %v", err)
	}
}

// After Unload, and after Remove without a datapath, no socket has programs.
func TestSocketUnload(t *testing.T) {
	testenv.Root(t)
	for _, way := range []string{"Unload", "Remove"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			r := netlab.NewSockets(t, false)
			r.Sync(t, netlab.BothOf(netlab.Web4))
			if err := r.Socket(t, false, unix.SOCK_STREAM).Connect(netlab.Web4); !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatal(err)
			}
			if way == "Unload" {
				if err := harness.Unload(r.D); err != nil {
					t.Fatal(err)
				}
			} else {
				removed, err := attach.Remove(r.Cfg.Root)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(removed, "program connect4 of sockets") {
					t.Errorf("removed are %v", removed)
				}
			}
			if err := r.Socket(t, false, unix.SOCK_STREAM).Connect(netlab.Web4); !errors.Is(err, unix.ENETUNREACH) {
				t.Errorf("connect is still translated: %v", err)
			}
			if _, err := os.Stat(load.SocketDir(r.Cfg.Root)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pins' directory is left: %v", err)
			}
			d, err := harness.Open(r.Cfg, nil, slog.New(slog.DiscardHandler)) // for the cleanup
			if err != nil {
				t.Fatal(err)
			}
			r.D = d
		})
	}
}

// awaitUntouched waits until connect is not translated: the kernel releases a link in the background.
func awaitUntouched(r *netlab.Sockets, tb testing.TB) {
	tb.Helper()
	deadline := time.Now().Add(netlab.Patience)
	for {
		err := r.Socket(tb, false, unix.SOCK_STREAM).Connect(netlab.Web4)
		if errors.Is(err, unix.ENETUNREACH) {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("connect is still translated: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}
