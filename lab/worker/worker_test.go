package worker

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/lab/workload"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// start runs a worker in this process and gives a connection to it.
func start(t *testing.T, netns testbed.Netns) *Conn {
	t.Helper()
	requests, in := io.Pipe()
	out, replies := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Loop(context.Background(), netns, requests, replies)
		replies.Close()
		ended <- err
	}()
	c := NewConn(in, out, func() error { return <-ended })
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	return c
}

// pair makes two namespaces joined by a veth pair whose ends have these MTUs.
func pair(t *testing.T, clientMTU, serverMTU int) (client, server testbed.Netns) {
	t.Helper()
	testenv.Root(t)
	var spaces [2]ns.NetNS
	for i := range spaces {
		spaces[i] = testenv.NewNetns(t)
	}
	up := func(name, address string, mtu int) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(link, a), netlink.LinkSetMTU(link, mtu), netlink.LinkSetUp(link), netlink.LinkSetUp(lo))
	}
	err := spaces[0].Do(func(ns.NetNS) error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a"}, PeerName: "b", PeerNamespace: netlink.NsFd(int(spaces[1].Fd()))}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return up("a", "10.78.0.1/24", clientMTU)
	})
	if err == nil {
		err = spaces[1].Do(func(ns.NetNS) error { return up("b", "10.78.0.2/24", serverMTU) })
	}
	if err != nil {
		t.Fatal(err)
	}
	netns := func(space ns.NetNS) testbed.Netns { return testbed.Netns{Path: space.Path()} }
	return netns(spaces[0]), netns(spaces[1])
}

// serverEnd is where the tests' server is.
func serverEnd() End {
	ports := workload.UsualPorts
	ports.Data = []int{23001, 23002}
	return End{Target: workload.Target{Address: netip.MustParseAddr("10.78.0.2"), Ports: ports}, Control: 23000, Token: "0123456789abcdef"}
}

// Every workload runs between two workers, with the CPU time of both ends.
func TestRunBetweenWorkers(t *testing.T) {
	near, away := pair(t, 1500, 1500)
	for _, w := range workload.All() {
		if m := w.Missing(); m != "" {
			testenv.Missing(t, m)
		}
	}
	client, server := start(t, near), start(t, away)
	end := serverEnd()
	turn, took := 0, map[string]time.Duration{}
	run := func(w workload.Workload) {
		name := w.Info().Name
		if _, err := server.Call(t.Context(), Request{Serve: &Serve{End: end, Workload: name, Procs: 1}}); err != nil {
			t.Fatalf("serve %s: %v", name, err)
		}
		began := time.Now()
		reply, err := client.Call(t.Context(), Request{Run: &Run{End: end, Workload: name, Procs: 1, Length: 200 * time.Millisecond, Turn: turn}})
		took[name] = time.Since(began)
		turn++
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		s := reply.Run
		const ticks = 0.05 // seconds that no clock of the kernel lets pass without one
		if s.Values[w.Info().Metric] <= 0 || s.Window < 0.2 || s.NoCPU != "" || s.ClientCPU.Total() == 0 ||
			s.ServerWindow <= 0 || s.ServerWindow > ticks && s.ServerCPU.Total() == 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	for _, w := range workload.All() {
		run(w)
	}
	// Without the client's word, the server's half of a test waits for its own timer of five more seconds, each time.
	for _, w := range workload.All() {
		late := func() bool { return took["tcp_crr"] > took["tcp_rr"]+4*time.Second }
		if w.Info().Name != "tcp_crr" || !late() {
			continue
		}
		if run(w); late() {
			t.Errorf("the workloads took %v", took)
		}
	}
}

// On one CPU, both ends count that one only: as long as the traffic lasted.
func TestRunOnOneCPU(t *testing.T) {
	near, away := pair(t, 1500, 1500)
	client, server := start(t, near), start(t, away)
	end, cpu := serverEnd(), 0
	if _, err := server.Call(t.Context(), Request{Serve: &Serve{End: end, Workload: "tcp_rr", Procs: 1, CPU: &cpu}}); err != nil {
		testenv.Missing(t, err.Error())
	}
	reply, err := client.Call(t.Context(), Request{Run: &Run{End: end, Workload: "tcp_rr", Procs: 1, Length: time.Second, CPU: &cpu}})
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []struct {
		ticks  uint64
		window float64
	}{{reply.Run.ClientCPU.Total(), reply.Run.Window}, {reply.Run.ServerCPU.Total(), reply.Run.ServerWindow}} {
		// A second is 100 ticks; of two CPUs it would be 200.
		if want := 100 * end.window; want == 0 || float64(end.ticks) < 0.7*want || float64(end.ticks) > 1.5*want {
			t.Errorf("%d ticks of one CPU in %v s", end.ticks, end.window)
		}
	}
}

func TestProbe(t *testing.T) {
	for _, test := range []struct{ client, server, mtu int }{{1500, 1500, 1500}, {9000, 9000, 9000}} {
		near, away := pair(t, test.client, test.server)
		client, server := start(t, near), start(t, away)
		end := serverEnd()
		if _, err := server.Call(t.Context(), Request{Serve: &Serve{End: end}}); err != nil {
			t.Fatal(err)
		}
		reply, err := client.Call(t.Context(), Request{Probe: &end})
		if err != nil {
			t.Fatal(err)
		}
		p := reply.Probe
		if p.MTU != test.mtu || p.Segment <= test.mtu-80 || p.Segment > test.mtu-40 || p.Source != "10.78.0.1" || p.Congestion == "" || strings.Contains(p.Congestion, "\x00") || p.Seen != p.Source {
			t.Errorf("MTU %d: %+v", test.mtu, p)
		}
	}
}

// Both ends say 9000, and yet the path carries less: what counts is what arrives, and data that does not is an error
// or shows in the segment.
func TestProbeDoesNotBelieveTheEnds(t *testing.T) {
	near, away := pair(t, 9000, 2000)
	err := away.Do(func() error {
		link, err := netlink.LinkByName("b")
		if err != nil {
			return err
		}
		_, to, err := net.ParseCIDR("10.78.0.0/24")
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Src: net.ParseIP("10.78.0.2"), Scope: netlink.SCOPE_LINK, AdvMSS: 8960})
	})
	if err != nil {
		t.Fatal(err)
	}
	client, server := start(t, near), start(t, away)
	end := serverEnd()
	if _, err := server.Call(t.Context(), Request{Serve: &Serve{End: end}}); err != nil {
		t.Fatal(err)
	}
	reply, err := client.Call(t.Context(), Request{Probe: &end})
	if err != nil { // a veth device may let the packets pass that TCP leaves for a card to cut
		if !strings.Contains(err.Error(), "packets of up to 200") || !strings.Contains(err.Error(), "TCP sends up to 8948 bytes") {
			t.Error(err)
		}
		return
	}
	// A veth device takes four bytes more than its MTU, for a VLAN tag.
	if p := reply.Probe; p.MTU < 2000 || p.MTU > 2004 || p.Segment != 8948 {
		t.Errorf("%+v, want 2000 and 8948", p)
	}
}

func TestStrangersGetNothing(t *testing.T) {
	near, away := pair(t, 1500, 1500)
	client, server := start(t, near), start(t, away)
	end := serverEnd()
	if _, err := server.Call(t.Context(), Request{Serve: &Serve{End: end}}); err != nil {
		t.Fatal(err)
	}
	end.Token = "fedcba9876543210"
	if _, err := client.Call(t.Context(), Request{Probe: &end}); err == nil || !strings.Contains(err.Error(), "greet") {
		t.Errorf("with a wrong token: %v", err)
	}
	// It answers others all the same.
	end = serverEnd()
	if _, err := client.Call(t.Context(), Request{Probe: &end}); err != nil {
		t.Errorf("with the right token: %v", err)
	}
}

func TestErrorsAreReplies(t *testing.T) {
	c := start(t, testbed.Netns{})
	for name, r := range map[string]Request{
		"empty request": {}, `no workload "x"`: {Run: &Run{Workload: "x"}},
		"reach the server's worker": {Run: &Run{Workload: "tcp_rr", Procs: 1, End: End{Target: workload.Target{Address: netip.MustParseAddr("127.0.0.1")}, Control: 1}}},
	} {
		if _, err := c.Call(t.Context(), r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q in it", err, name)
		}
	}
	if reply, err := c.Call(t.Context(), Request{CPU: true}); err != nil || reply.CPU.Total() == 0 {
		t.Errorf("after errors: %+v, %v", reply, err)
	}
	if reply, err := c.Call(t.Context(), Request{Facts: &Ask{}}); err != nil || reply.Facts.Boot == "" || len(reply.Facts.Devices) == 0 || reply.Facts.Environment.CongestionControl == "" {
		t.Errorf("facts: %+v, %v", reply.Facts, err)
	}
}

// A bench that goes away ends what it began.
func TestAbandonedWorkerEnds(t *testing.T) {
	near, away := pair(t, 1500, 1500)
	client, server := start(t, near), start(t, away)
	end := serverEnd()
	if _, err := server.Call(t.Context(), Request{Serve: &Serve{End: end, Workload: "tcp_rr", Procs: 1}}); err != nil {
		testenv.Missing(t, err.Error())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := client.Call(ctx, Request{Run: &Run{End: end, Workload: "tcp_rr", Procs: 1, Length: time.Hour}})
	if !errors.Is(err, context.DeadlineExceeded) || !client.Broken() {
		t.Errorf("%v, broken %v", err, client.Broken())
	}
	if _, err := client.Call(t.Context(), Request{CPU: true}); err == nil {
		t.Error("a broken connection was used")
	}
}

func TestAskProxy(t *testing.T) {
	for answer, want := range map[string]string{"iptables": "iptables", "nftables\n": "nftables", "<html>": "", "": ""} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		got, err := askProxy(t.Context(), server.URL)
		server.Close()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", answer, got, err)
		}
		if _, err := askProxy(t.Context(), server.URL); err == nil {
			t.Error("there is no server, and there is a mode")
		}
	}
}
