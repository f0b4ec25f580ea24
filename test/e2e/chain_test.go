package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/testbed"
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
