package workload

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/result"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// withDataPorts is the same target with ports that netperf's data is to use.
func withDataPorts(s *Servers) Server {
	target := s.target
	target.Ports.Data = []int{23001, 23002, 23003}
	return behind{s, target}
}

// behind is a server that clients reach at another target than its own.
type behind struct {
	*Servers
	target Target
}

func (b behind) Target() Target { return b.target }

// Tests whose data goes to given ports use those and no others, also when several run at once.
func TestNetperfDataPorts(t *testing.T) {
	client, servers := pair(t)
	server := withDataPorts(servers)
	for _, w := range []netperf{stream128k, rr, crr, udpRR} {
		if err := w.Serve(t.Context(), servers, 1); err != nil {
			t.Fatal(err)
		}
		for turn := range 2 {
			out, err := w.Run(t.Context(), Request{Client: client, Server: server, Procs: 2, Length: 100 * time.Millisecond, Turn: turn})
			if err != nil {
				t.Fatalf("%s: %v", w.info.Name, err)
			}
			want := []string{",23001", ",23003"}[turn] // of two processes in a turn, the first
			if !slices.Contains(out.Command, want) || out.Values[w.info.Metric] <= 0 {
				t.Errorf("%s: %q, %v; want data port %s", w.info.Name, out.Command, out.Values, want)
			}
		}
	}
}

// pair makes two namespaces joined by a veth pair, and servers in the second.
func pair(t *testing.T) (testbed.Netns, *Servers) {
	t.Helper()
	testenv.Root(t)
	for _, w := range All() {
		if m := w.Missing(); m != "" {
			testenv.Missing(t, m)
		}
	}
	var spaces [2]ns.NetNS
	for i := range spaces {
		spaces[i] = testenv.NewNetns(t)
	}
	up := func(name, address string) {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		a, err := netlink.ParseAddr(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(netlink.AddrAdd(link, a), netlink.LinkSetUp(link)); err != nil {
			t.Fatal(err)
		}
	}
	err := spaces[0].Do(func(ns.NetNS) error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b", PeerNamespace: netlink.NsFd(int(spaces[1].Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		up("a", "10.77.0.1/24")
		return nil
	})
	if err == nil {
		err = spaces[1].Do(func(ns.NetNS) error { up("b", "10.77.0.2/24"); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	servers := NewServers(testbed.Netns{Path: spaces[1].Path()}, Target{netip.MustParseAddr("10.77.0.2"), UsualPorts})
	t.Cleanup(func() {
		if err := servers.Close(); err != nil {
			t.Error(err)
		}
	})
	return testbed.Netns{Path: spaces[0].Path()}, servers
}

// Every workload gives its headline metric over a veth pair.
func TestRunAll(t *testing.T) {
	client, servers := pair(t)
	for _, w := range All() {
		procs := 1
		if len(w.Processes(2)) > 1 {
			procs = 2
		}
		t.Run(w.Info().Name, func(t *testing.T) {
			if err := w.Serve(t.Context(), servers, procs); err != nil {
				t.Fatal(err)
			}
			for n := 1; n <= procs; n++ {
				windows := ""
				out, err := w.Run(t.Context(), Request{
					Client: client, Server: servers, Procs: n, Length: 200 * time.Millisecond,
					Window: func(end bool) {
						if end {
							windows += "end"
						} else {
							windows += "begin "
						}
					},
				})
				if err != nil {
					t.Fatalf("%d processes: %v", n, err)
				}
				if out.Values[w.Info().Metric] <= 0 || len(out.Command) == 0 {
					t.Errorf("%d processes: %v", n, out)
				}
				if windows != "begin end" {
					t.Errorf("window: %q", windows)
				}
				if _, skewed := out.Values[result.Skew]; skewed != (n > 1) {
					t.Errorf("%d processes: skew recorded: %v", n, skewed)
				}
			}
		})
	}
}

func TestRunWithoutServer(t *testing.T) {
	client, servers := pair(t)
	_, err := rr.Run(t.Context(), Request{Client: client, Server: servers, Procs: 1, Length: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "control connection") {
		t.Errorf("%v, want netperf's own words", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	client, servers := pair(t)
	if err := rr.Serve(t.Context(), servers, 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		time.Sleep(100 * time.Millisecond)
		cancel()
	}()
	_, err := rr.Run(ctx, Request{Client: client, Server: servers, Procs: 2, Length: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}

func TestServersEnd(t *testing.T) {
	_, servers := pair(t)
	if err := rr.Serve(t.Context(), servers, 1); err != nil {
		t.Fatal(err)
	}
	pid := servers.pid(netserver)
	if err := rr.Serve(t.Context(), servers, 1); err != nil || servers.pid(netserver) != pid {
		t.Errorf("a second Serve: %v, pid %d → %d", err, pid, servers.pid(netserver))
	}
	if err := servers.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("netserver after Close: %v", err)
	}
}

func TestServerThatEndsSaysWhy(t *testing.T) {
	_, servers := pair(t)
	err := servers.start(t.Context(), "broken", func() bool { return false }, "/bin/sh", "-c", "echo no luck; exit 1")
	if err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("%v, want the server's words", err)
	}
}

// Processes do nothing before the release, and then all of them do.
func TestGroupStartsTogether(t *testing.T) {
	dir := t.TempDir()
	var commands [][]string
	for _, name := range []string{"a", "b", "c"} {
		commands = append(commands, []string{"touch", filepath.Join(dir, name)})
	}
	g, err := newGroup(testbed.Netns{}, commands)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("before the release: %v, %v", entries, err)
	}
	if _, err := g.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("after the release: %v, %v", entries, err)
	}
}

func TestHandles(t *testing.T) {
	tests := map[string]struct {
		status string
		want   bool
	}{
		"netperf in its test":    {"State:\tR (running)\nSigCgt:\t0000000000002002\n", true},
		"netperf before":         {"State:\tS (sleeping)\nSigCgt:\t0000000000000000\n", false},
		"another signal":         {"State:\tS (sleeping)\nSigCgt:\t0000000000000002\n", false},
		"ended":                  {"State:\tZ (zombie)\nSigCgt:\t0000000000000000\n", true},
		"nothing there":          {"", false},
		"no number in the mask:": {"SigCgt:\tx\n", false},
	}
	for name, test := range tests {
		if got := handles(test.status, syscall.SIGALRM); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
