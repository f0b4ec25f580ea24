package datapath

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
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// While Services are replaced thousands of times, every connection finds a backend, and one of its own Service.
func TestSocketReplacement(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	one, two, three := backends4[0], backends4[1], backends4[2]
	r.sync(t, bothOf(web4, one), bothOf(dns4, three))

	var stop atomic.Bool
	var made atomic.Int64
	var clients sync.WaitGroup
	for _, c := range []struct {
		to   netip.AddrPort
		want []netip.Addr
	}{{web4, []netip.Addr{one, two}}, {dns4, []netip.Addr{three}}} {
		clients.Go(func() {
			r.in(t, func() error {
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
		set := append(bothOf(web4, sets[i%3]...), bothOf(dns4, three)...)
		// Ports that come and go let the kernel use the places of the others' entries again.
		extra := portOf(netip.AddrPortFrom(web4.Addr(), uint16(1000+i%7)), cluster.TCP, three)
		var removed []service.PortName
		if i%2 == 0 {
			set = append(set, extra)
		} else {
			removed = append(removed, extra.Name)
		}
		if err := r.d.Services.Apply(set, removed); err != nil {
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

// connectOnce asks a Service its backend's name by UDP and connects by TCP.
func connectOnce(to netip.AddrPort, want []netip.Addr) error {
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(udp)
	s := socket{udp}
	if err := s.connect(to); err != nil {
		return fmt.Errorf("connect by UDP: %w", err)
	}
	if _, err := unix.Write(udp, []byte("?")); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	name, _, err := s.hear()
	if err != nil {
		return fmt.Errorf("hear: %w", err)
	}
	if b, err := netip.ParseAddrPort(name); err != nil || !slices.Contains(want, b.Addr()) {
		return fmt.Errorf("%s answered for %s", name, to)
	}
	tcp, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(tcp)
	// Reset at close: thousands of connections would else wait with their ports (TIME_WAIT).
	if err := unix.SetsockoptLinger(tcp, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return err
	}
	if err := (socket{tcp}).connect(to); err != nil {
		return fmt.Errorf("connect by TCP: %w", err)
	}
	return nil
}

// The next agent takes over: connections go on, sockets know their Services, and no connect is without the programs.
func TestSocketRestart(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	services := append(bothOf(web4, backends4...), bothOf(dns4, backends4[0])...)
	r.sync(t, services)
	tcp, udp := r.socket(t, false, unix.SOCK_STREAM), r.socket(t, false, unix.SOCK_DGRAM)
	unconnected := r.socket(t, false, unix.SOCK_DGRAM)
	if err := errors.Join(tcp.connect(web4), udp.connect(web4)); err != nil {
		t.Fatal(err)
	}
	askAt := func(to netip.AddrPort) string {
		t.Helper()
		name, from := unconnected.askAt(t, to)
		if from != to {
			t.Errorf("the answer came from %s, expected %s", from, to)
		}
		return name
	}
	names := []string{tcp.ask(t), udp.ask(t), askAt(web4), askAt(dns4)}
	links := r.linkIDs(t)

	var stop atomic.Bool
	var client sync.WaitGroup
	client.Go(func() {
		r.in(t, func() error {
			for !stop.Load() {
				if err := connectOnce(web4, backends4); err != nil {
					t.Error(err)
					return nil
				}
			}
			return nil
		})
	})
	for range 3 {
		if err := r.d.Close(); err != nil {
			t.Fatal(err)
		}
		r.open(t)
		r.sync(t, services)
	}
	stop.Store(true)
	client.Wait()

	for _, s := range []socket{tcp, udp} {
		if peer := s.peer(t); peer != web4 {
			t.Errorf("the peer is %s after restarts", peer)
		}
	}
	if after := []string{tcp.ask(t), udp.ask(t), askAt(web4), askAt(dns4)}; !slices.Equal(names, after) {
		t.Errorf("%v answered before, %v after restarts", names, after)
	}
	if now := r.linkIDs(t); !slices.Equal(links, now) {
		t.Errorf("links were %v and are %v: they were made anew", links, now)
	}
}

// linkIDs gives the kernel's numbers of the links at sockets.
func (r *socketRig) linkIDs(tb testing.TB) []uint32 {
	tb.Helper()
	return pinnedLinkIDs(tb, socketDir(r.cfg.Root))
}

// The configuration says where the programs are: elsewhere, nowhere, and not at a cgroup that is gone.
func TestSocketCgroups(t *testing.T) {
	testenv.Root(t)
	t.Parallel()
	r := newSocketRig(t, false)
	r.serveAll(t)
	services := bothOf(web4, backends4[0])
	r.sync(t, services)
	first, second := r.cgroup, newThreadedCgroup(t)
	connects := func(cgroup string) error {
		r.cgroup = cgroup
		return r.socket(t, false, unix.SOCK_DGRAM).connect(web4)
	}
	restart := func(cfg Config) {
		t.Helper()
		if err := r.d.Close(); err != nil {
			t.Fatal(err)
		}
		r.cfg = cfg
		r.open(t)
		r.sync(t, services)
	}
	if err := errors.Join(connects(first), r.d.CheckSockets()); err != nil {
		t.Error(err)
	}
	if err := connects(second); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("connect in another cgroup: %v", err)
	}

	moved := r.cfg
	moved.Cgroup = second
	restart(moved)
	if err := errors.Join(connects(second), r.d.CheckSockets()); err != nil {
		t.Error(err)
	}
	r.cgroup = first
	r.awaitUntouched(t)
	if got, err := r.d.SocketPrograms(); err != nil || len(got) != len(socketProgramNames) {
		t.Errorf("%v are attached, %v", got, err)
	}

	// The cgroup is removed behind the agent's back: said, and mended by attaching again.
	gone := newRemovableCgroup(t)
	moved.Cgroup = gone
	restart(moved)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.d.CheckSockets(); err == nil || !strings.Contains(err.Error(), "has lost the cgroup") {
		t.Errorf("the check says %v", err)
	}
	if err := errors.Join(r.d.AttachSockets(), r.d.CheckSockets()); err != nil {
		t.Error(err)
	}

	// Without Services the next agent takes the programs off.
	none := moved
	none.Services = false
	if err := r.d.Close(); err != nil {
		t.Fatal(err)
	}
	r.cfg = none
	r.open(t)
	if got, err := r.d.SocketPrograms(); err != nil || len(got) != 0 {
		t.Errorf("%v are attached still, %v", got, err)
	}
	if err := r.d.CheckSockets(); err != nil {
		t.Error(err)
	}
}

// newRemovableCgroup makes a cgroup that the test may remove.
func newRemovableCgroup(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp(ownCgroup(tb), "beeline-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.Remove(dir) })
	return dir
}

// A directory that is no cgroup of version 2 is refused with what to do.
func TestSocketsNeedCgroup2(t *testing.T) {
	testenv.Root(t)
	d, err := open(Config{Root: bpffs(t), Services: true, Cgroup: t.TempDir()}, nil, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unload(d); err != nil {
			t.Error(err)
		}
	}()
	if err := d.AttachSockets(); err == nil || !strings.Contains(err.Error(), "no cgroup of version 2") {
		t.Errorf("error is %v", err)
	}
}

// After Unload, and after Remove without a datapath, sockets are nobody's.
func TestSocketUnload(t *testing.T) {
	testenv.Root(t)
	for _, way := range []string{"Unload", "Remove"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			r := newSocketRig(t, false)
			r.sync(t, bothOf(web4))
			if err := r.socket(t, false, unix.SOCK_STREAM).connect(web4); !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatal(err)
			}
			if way == "Unload" {
				if err := unload(r.d); err != nil {
					t.Fatal(err)
				}
			} else {
				removed, err := Remove(r.cfg.Root)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Contains(removed, "program connect4 of sockets") {
					t.Errorf("removed are %v", removed)
				}
			}
			if err := r.socket(t, false, unix.SOCK_STREAM).connect(web4); !errors.Is(err, unix.ENETUNREACH) {
				t.Errorf("connect is still translated: %v", err)
			}
			if _, err := os.Stat(socketDir(r.cfg.Root)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pins' directory is left: %v", err)
			}
			d, err := open(r.cfg, nil, slog.New(slog.DiscardHandler)) // for the cleanup
			if err != nil {
				t.Fatal(err)
			}
			r.d = d
		})
	}
}

// awaitUntouched waits until sockets of the cgroup connect where they say: the kernel lets go of a link in the background.
func (r *socketRig) awaitUntouched(tb testing.TB) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := r.socket(tb, false, unix.SOCK_STREAM).connect(web4)
		if errors.Is(err, unix.ENETUNREACH) {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("connect is still translated: %v", err)
		}
		time.Sleep(time.Millisecond)
	}
}
