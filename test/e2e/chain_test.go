package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
	"github.com/beeline-cni/beeline/test/netlab"
)

// Standard plugins that are chained after a network.
var (
	portmap = map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}}
	tuning  = map[string]any{"type": "tuning", "sysctl": map[string]string{"net.core.somaxconn": "321"}}
)

// needPlugins skips the test where a standard plugin is not installed.
func needPlugins(t *testing.T, plugins ...map[string]any) {
	t.Helper()
	for _, p := range plugins {
		if _, err := os.Stat(filepath.Join(referencePlugins, p["type"].(string))); err != nil {
			testenv.Missing(t, fmt.Sprintf("no CNI plugin %s (Debian package containernetworking-plugins)", p["type"]))
		}
	}
}

// TestTuningChained chains the plugin tuning, which changes the pod's namespace.
func TestTuningChained(t *testing.T) {
	t.Parallel()
	needPlugins(t, tuning)
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	network, pod := c.network(n, current(t), "1.0.0", tuning), c.newPod(n, "pod")
	if _, err := network.add(t.Context(), pod, runtimeConf(pod)); err != nil {
		t.Fatal(err)
	}
	if value, err := pod.ReadSysctl("net/core/somaxconn"); err != nil || value != "321" {
		t.Errorf("the setting is %q in the pod: %v", value, err)
	}
	if err := c.reach(pod, c.addPod(c.nodes[1], "peer")); err != nil {
		t.Error(err)
	}
	if err := network.CNI.CheckNetworkList(t.Context(), network.List, runtimeConf(pod)); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := network.del(t.Context(), runtimeConf(pod)); err != nil {
		t.Error(err)
	}
	c.waitNoTraces(n)
}

// TestPortmapChained reaches a pod through a host port, from everywhere. With eBPF routing the packets of this pod go
// through the kernel stack, where portmap translates them. Other pods keep their path.
func TestPortmapChained(t *testing.T) {
	t.Parallel()
	needPlugins(t, portmap)
	for routing, paths := range map[string]map[string]string{
		"ebpf":   {"server": "port mapping", "near": ""},
		"kernel": {"server": "--routing=kernel", "near": "--routing=kernel"},
	} {
		t.Run(routing, func(t *testing.T) {
			programs := current(t)
			c := newCluster(t, testbed.Options{Nodes: 3, IPv6: true})
			external := c.nodes[2]
			if err := os.Remove(c.manifestFile(external)); err != nil {
				t.Fatal(err)
			}
			c.nodes = c.nodes[:2]
			for _, n := range c.nodes {
				c.start(n, programs, "--routing", routing, "--services=none")
			}
			for _, n := range c.nodes {
				c.waitReady(n)
			}
			n := c.nodes[0]
			network, pod := c.network(n, programs, "1.0.0", portmap), c.newPod(n, "server")
			conf := runtimeConf(pod)
			conf.CapabilityArgs = map[string]any{"portMappings": []map[string]any{{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
			if _, err := network.add(t.Context(), pod, conf); err != nil {
				t.Fatal(err)
			}
			near, far := c.addPod(n, "near"), c.addPod(c.nodes[1], "far")
			c.wantPaths(n, paths)
			spaces := map[string]testbed.Netns{
				"the external network": external.Netns, "own node": n.Netns, "the pod itself": pod.Netns, "other node": c.nodes[1].Netns,
				"pod of the node": near.Netns, "pod of another node": far.Netns,
			}
			check := func(when string) {
				t.Helper()
				for _, address := range n.Addresses {
					mapped := netip.AddrPortFrom(address.Addr(), 8080)
					for name, netns := range spaces {
						if err := askEcho(netns, mapped); err != nil {
							t.Errorf("%s, from %s to %s: %v", when, name, mapped, err)
						}
					}
				}
			}
			for _, address := range pod.Addresses {
				serveEcho(t, pod.Netns, netip.AddrPortFrom(address, 80))
			}
			check("with the first agent")
			for _, peer := range []*testbed.Pod{near, far} { // they see the pod's own address
				if err := errors.Join(c.reach(pod, peer), c.reach(peer, pod)); err != nil {
					t.Error(err)
				}
			}
			c.restart(n, newer(t), "--routing", routing)
			c.wantPaths(n, paths)
			check("with the next agent")
			if err := network.del(t.Context(), conf); err != nil {
				t.Error(err)
			}
			for _, address := range n.Addresses {
				if err := askEcho(external.Netns, netip.AddrPortFrom(address.Addr(), 8080)); err == nil {
					t.Errorf("the port of %s accepts a connection after DEL", address)
				}
			}
		})
	}
}

// wantPaths checks the reason for which each pod of the node, by name, uses the kernel stack; "" is the eBPF path.
func (c *cluster) wantPaths(n *node, want map[string]string) {
	c.t.Helper()
	all, err := n.api().Endpoints(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range all {
		got[e.Pod.Name] = e.ThroughStack
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("paths of the pods of %s (-want +got):\n%s", n.Name, diff)
	}
}

// serveEcho runs a TCP echo server until the test ends.
func serveEcho(t *testing.T, netns testbed.Netns, at netip.AddrPort) {
	t.Helper()
	err := netns.Do(func() error {
		l, err := net.Listen("tcp", at.String())
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					_, _ = io.Copy(conn, conn) // the client checks the reply
				}()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// askEcho sends one request to an echo server over a new TCP connection.
func askEcho(netns testbed.Netns, at netip.AddrPort) error {
	return netns.Do(func() error {
		conn, err := net.DialTimeout("tcp", at.String(), connectTime)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(transferTime))
		if _, err := conn.Write(make([]byte, requestSize)); err != nil {
			return err
		}
		_, err = io.ReadFull(conn, make([]byte, requestSize))
		return err
	})
}

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

// TestPathOutlivesFiles loses the endpoint files while no agent runs. The map `endpoints` still has the pods that use
// the kernel stack.
func TestPathOutlivesFiles(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	own := pluginConf(n)
	own["routing"] = "kernel"
	pod := c.newPod(n, "stack")
	if _, err := c.networkOf(n, current(t), "1.1.0", own).add(t.Context(), pod, runtimeConf(pod)); err != nil {
		t.Fatal(err)
	}
	direct := c.addPod(n, "direct")
	c.kill(n)
	c.removeEndpointFiles(n)
	c.start(n, current(t))
	c.waitReady(n)
	all, err := n.api().Endpoints(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("endpoints %+v: %v", all, err)
	}
	for _, e := range all {
		if through := slices.Equal(e.Addresses, pod.Addresses); (e.ThroughStack != "") != through || e.State != agentapi.StateReady {
			t.Errorf("endpoint %+v, want it through the kernel stack: %t", e, through)
		}
	}
	if err := errors.Join(c.reach(pod, direct), c.reach(direct, pod)); err != nil {
		t.Error(err)
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
