package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// TestBandwidth limits everything that a pod sends and receives, by the runtime's limits, and by those of the chained plugin bandwidth in a
// network with routing "kernel".
func TestBandwidth(t *testing.T) {
	t.Parallel()
	const rate = 8 << 20 // bits per second
	limits := map[string]any{"ingressRate": rate, "ingressBurst": rate / 8, "egressRate": rate, "egressBurst": rate / 8}
	chained := map[string]any{"type": "bandwidth"}
	maps.Copy(chained, limits)
	for name, test := range map[string]struct {
		routing string // of the agents
		network string // routing of the network
		chained []map[string]any
		args    map[string]any
		path    string
	}{
		"ebpf":    {"ebpf", "", nil, map[string]any{"bandwidth": limits}, ""},
		"vxlan":   {"ebpf", "", nil, map[string]any{"bandwidth": limits}, ""},
		"kernel":  {"kernel", "", nil, map[string]any{"bandwidth": limits}, "--routing=kernel"},
		"chained": {"ebpf", "kernel", []map[string]any{chained}, nil, "routing of network " + networkName},
	} {
		t.Run(name, func(t *testing.T) {
			needPlugins(t, test.chained...)
			tunnel := "auto"
			if name == "vxlan" {
				tunnel = name
			}
			c := up(t, testbed.Options{}, "--routing", test.routing, "--tunnel", tunnel)
			n := c.nodes[0]
			own := pluginConf(n)
			if test.network != "" {
				own["routing"] = test.network
			}
			network, pod := c.networkOf(n, current(t), "1.0.0", own, test.chained...), c.newPod(n, "slow")
			conf := runtimeConf(pod)
			conf.CapabilityArgs = test.args
			if _, err := network.add(t.Context(), pod, conf); err != nil {
				t.Fatal(err)
			}
			c.wantPaths(n, map[string]string{"slow": test.path})
			near, far := c.addPod(n, "near"), c.addPod(c.nodes[1], "far")
			for _, peer := range []*testbed.Pod{asPod(n, pod), near, far} {
				for _, ends := range [][2]*testbed.Pod{{pod, peer}, {peer, pod}} {
					begin := time.Now()
					if _, err := transfer(ends[0].Netns, ends[1].Netns, ends[1].Addresses[0]); err != nil {
						t.Error(err)
					}
					// 512 KiB take half a second at this rate, and the burst is an eighth of a second.
					if took := time.Since(begin); took < 300*time.Millisecond {
						t.Errorf("%s to %s took %s", ends[0].Name, ends[1].Name, took)
					}
				}
			}
			c.delPod(n, near)
			if err := network.del(t.Context(), conf); err != nil {
				t.Error(err)
			}
			c.waitNoTraces(n)
		})
	}
}

// TestBandwidthChanges gives a pod limits while it runs, and takes them away. They hold without its own queue, which the pod can remove,
// without an agent, and for the next one.
func TestBandwidthChanges(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	pod, near, far := c.newPod(n, "web"), c.addPod(n, "near"), c.addPod(c.nodes[1], "far")
	conf := runtimeConf(pod)
	conf.Args = append(conf.Args, [2]string{"K8S_POD_UID", "0b6f9a55-3b1e-4c2e-9d4e-1f1c6a1f0a02"})
	if _, err := c.standard(n).add(t.Context(), pod, conf); err != nil {
		t.Fatal(err)
	}
	var host string
	follow := func(annotations string, want agentapi.Bandwidth) {
		t.Helper()
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default, uid: 0b6f9a55-3b1e-4c2e-9d4e-1f1c6a1f0a02, annotations: {%s}}\nspec: {nodeName: %s}\n", annotations, n.Name)
		if err := netlab.WriteManifest(c.manifests, "web.yaml", []byte(text)); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			all, err := n.api().Endpoints(t.Context())
			at := slices.IndexFunc(all, func(e agentapi.Endpoint) bool { return e.Pod.Name == "web" })
			if err != nil || at < 0 {
				return fmt.Errorf("no endpoint: %w", err)
			}
			if host = all[at].HostDevice; all[at].Bandwidth != want {
				return fmt.Errorf("limits are %+v, want %+v", all[at].Bandwidth, want)
			}
			return nil
		})
	}
	limited := func(when string) {
		t.Helper()
		for _, peer := range []*testbed.Pod{asPod(n, pod), near, far} {
			for _, ends := range [][2]*testbed.Pod{{pod, peer}, {peer, pod}} {
				begin := time.Now()
				if _, err := transfer(ends[0].Netns, ends[1].Netns, ends[1].Addresses[0]); err != nil {
					t.Errorf("%s: %v", when, err)
				}
				if took := time.Since(begin); took < 300*time.Millisecond { // 512 KiB at 8 Mbit/s
					t.Errorf("%s: %s to %s took %s", when, ends[0].Name, ends[1].Name, took)
				}
			}
		}
	}
	follow(`kubernetes.io/egress-bandwidth: 8M, kubernetes.io/ingress-bandwidth: 8M`, agentapi.Bandwidth{Egress: 8e6, Ingress: 8e6})
	limited("with limits")
	if out, err := pod.Netns.Output(t.Context(), "tc", "qdisc", "del", "dev", "eth0", "root"); err != nil {
		t.Fatalf("the pod removes its queue: %v: %s", err, out)
	}
	limited("without the pod's queue")
	c.kill(n)
	limited("without an agent")
	c.start(n, current(t))
	c.waitReady(n)
	limited("with the next agent")
	follow(`other: 8M`, agentapi.Bandwidth{})
	if out, err := n.Netns.Output(t.Context(), "tc", "qdisc", "show", "dev", host); err != nil || strings.Contains(string(out), "tbf") {
		t.Errorf("without limits the host end has %s: %v", out, err)
	}
	if err := errors.Join(c.reach(pod, near), c.reach(near, pod)); err != nil {
		t.Error(err)
	}
}

// TestBandwidthOfAllWays has a pod without its own queue send as fast as it can on all ways at once: to a pod of its node and of another
// one, to its node, and to whatever listens at its link. Together they get no more than its limit.
func TestBandwidthOfAllWays(t *testing.T) {
	t.Parallel()
	const rate = 8_000_000
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	near, far := c.addPod(n, "near"), c.addPod(c.nodes[1], "far")
	for name, limited := range map[string]bool{"slow": true, "fast": false} {
		pod := c.newPod(n, name)
		conf := runtimeConf(pod)
		if limited {
			conf.CapabilityArgs = map[string]any{"bandwidth": map[string]any{"egressRate": rate, "egressBurst": rate}}
		}
		if _, err := c.standard(n).add(t.Context(), pod, conf); err != nil {
			t.Fatal(err)
		}
		if limited {
			if out, err := pod.Netns.Output(t.Context(), "tc", "qdisc", "del", "dev", podInterface, "root"); err != nil {
				t.Fatalf("the pod removes its queue: %v: %s", err, out)
			}
		}
		ways := []*countedWay{
			countWay(t, near.Netns, near.Addresses[0]), countWay(t, far.Netns, far.Addresses[1]), countWay(t, n.Netns, n.Addresses[0].Addr()),
			countWay(t, n.Netns, netip.IPv6Unspecified()),
		}
		sendAll(t, pod.Netns, ways)
		var all int64
		for _, w := range ways {
			got := w.close()
			all += got
			t.Logf("%s: %d bytes at %s", name, got, w.at)
			if got == 0 {
				t.Errorf("%s: nothing arrives at %s", name, w.at)
			}
		}
		// Half as much again, since the machine may be late with the end; without limit it is much more.
		if most := int64(rate / 8 * 3 / 2); limited != (all < most) {
			t.Errorf("%s: %d bytes arrive in a second, at most %d with the limit", name, all, most)
		}
		if err := c.standard(n).del(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBandwidthIsFair has a pod with a limit send by a hundred connections, without its own queue, while another pod of its node asks a
// pod of another node: each request waits for its reply. The hundred do not have the one wait. The log has what that costs.
func TestBandwidthIsFair(t *testing.T) {
	t.Parallel()
	const rate, connections, asking = 8_000_000, 100, 5 * time.Second
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	many, one, far := c.newPod(n, "many"), c.addPod(n, "one"), c.addPod(c.nodes[1], "far")
	conf := runtimeConf(many)
	conf.CapabilityArgs = map[string]any{"bandwidth": map[string]any{"egressRate": rate, "egressBurst": rate}}
	if _, err := c.standard(n).add(t.Context(), many, conf); err != nil {
		t.Fatal(err)
	}
	if out, err := many.Netns.Output(t.Context(), "tc", "qdisc", "del", "dev", podInterface, "root"); err != nil {
		t.Fatalf("the pod removes its queue: %v: %s", err, out)
	}
	client, server, err := connect(one.Netns, far.Netns, far.Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, server) // the client checks the reply
	}()
	ask := func() (took []time.Duration) {
		text := make([]byte, requestSize)
		for end := time.Now().Add(asking); time.Now().Before(end); {
			begin := time.Now()
			_ = client.SetDeadline(begin.Add(transferTime))
			if _, err := client.Write(text); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(client, text); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took
	}
	alone := ask()
	var senders, receivers []net.Conn
	for range connections { // before any of them sends
		client, server, err := connect(many.Netns, far.Netns, far.Addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		_ = client.(*net.TCPConn).SetLinger(0) // what is left in its buffer would take long
		defer client.Close()
		defer server.Close()
		senders, receivers = append(senders, client), append(receivers, server)
	}
	var received atomic.Int64
	for i := range connections {
		go func() {
			for chunk := make([]byte, 64<<10); ; {
				if _, err := senders[i].Write(chunk); err != nil {
					return // the end of the test
				}
			}
		}()
		go func() {
			for chunk := make([]byte, 64<<10); ; {
				n, err := receivers[i].Read(chunk)
				if err != nil {
					return
				}
				received.Add(int64(n))
			}
		}()
	}
	beside := ask()
	got := received.Load()
	t.Logf("alone %d requests, half in %v, 99 %% in %v; beside %d connections %d requests, half in %v, 99 %% in %v",
		len(alone), alone[len(alone)/2], alone[len(alone)*99/100], connections, len(beside), beside[len(beside)/2], beside[len(beside)*99/100])
	// The limit lets the hundred have 20 ms of packets in a queue that all share.
	if least := int(asking / time.Second); len(beside) < least {
		t.Errorf("beside %d connections %d requests have a reply in %v, want %d", connections, len(beside), asking, least)
	}
	if most := int64(rate / 8 * 2 * asking.Seconds()); got == 0 || got > most {
		t.Errorf("of the %d connections %d bytes arrive in %v, want some, at most %d", connections, got, asking, most)
	}
}

// countedWay counts the payload of the datagrams that arrive at an address.
type countedWay struct {
	at    netip.AddrPort
	conn  *net.UDPConn
	bytes atomic.Int64
}

func countWay(t *testing.T, at testbed.Netns, address netip.Addr) *countedWay {
	t.Helper()
	w := &countedWay{}
	err := at.Do(func() (err error) {
		w.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.conn.Close() })
	w.at = netip.AddrPortFrom(address, w.conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	go func() {
		for buffer := make([]byte, 2048); ; {
			n, err := w.conn.Read(buffer)
			if err != nil {
				return
			}
			w.bytes.Add(int64(n))
		}
	}()
	return w
}

// close ends the counting.
func (w *countedWay) close() int64 {
	w.conn.Close()
	return w.bytes.Load()
}

// sendAll sends large datagrams to all addresses at once, for a second, from the pod's interface.
func sendAll(t *testing.T, from testbed.Netns, to []*countedWay) {
	t.Helper()
	var conns []*net.UDPConn
	for _, w := range to {
		at := w.at
		if at.Addr().IsUnspecified() { // all sockets of the node at this link
			at = netip.AddrPortFrom(netip.IPv6LinkLocalAllNodes().WithZone(podInterface), at.Port())
		}
		if err := from.Do(func() error {
			conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
			conns = append(conns, conn)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	payload := make([]byte, 1200)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		for _, conn := range conns {
			_, _ = conn.Write(payload) // what is dropped is countedWay where it does not arrive
		}
	}
	for _, conn := range conns {
		conn.Close()
	}
}
