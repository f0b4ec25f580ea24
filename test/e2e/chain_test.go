package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/testenv"
	"github.com/beeline-cni/beeline/lab/topology"
)

// The standard plugins that people chain after the network.
var (
	portmap   = map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}}
	bandwidth = map[string]any{"type": "bandwidth", "capabilities": map[string]bool{"bandwidth": true}}
	tuning    = map[string]any{"type": "tuning", "sysctl": map[string]string{"net.core.somaxconn": "321"}}
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

// TestTuningChained proves that the plugin tuning works on the pod's namespace after ours.
func TestTuningChained(t *testing.T) {
	t.Parallel()
	needPlugins(t, tuning)
	c := up(t, topology.Options{})
	n := c.nodes[0]
	network, pod := c.network(n, current(t), "1.0.0", tuning), c.newPod(n, "pod")
	if _, err := network.add(t.Context(), pod, runtimeConf(pod)); err != nil {
		t.Fatal(err)
	}
	if value, err := c.lab.Place(pod).ReadSysctl("net/core/somaxconn"); err != nil || value != "321" {
		t.Errorf("the setting is %q in the pod: %v", value, err)
	}
	if err := c.reach(pod, c.addPod(c.nodes[1], "peer")); err != nil {
		t.Error(err)
	}
	if err := network.cni.CheckNetworkList(t.Context(), network.list, runtimeConf(pod)); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := network.del(t.Context(), runtimeConf(pod)); err != nil {
		t.Error(err)
	}
	c.waitNoTraces(n)
}

// TestPortmapChained reaches a pod through a port of its node. With eBPF routing that works for the world and for
// the node itself: what the pod answers to the cluster's own addresses passes by the connection tracking that
// would translate it back, see docs/operations.md.
func TestPortmapChained(t *testing.T) {
	t.Parallel()
	needPlugins(t, portmap)
	for routing, fromCluster := range map[string]bool{"ebpf": false, "kernel": true} {
		t.Run(routing, func(t *testing.T) {
			programs := current(t)
			c := newCluster(t, topology.Options{Nodes: 3})
			world := c.nodes[2]
			if err := os.Remove(c.manifestFile(world)); err != nil {
				t.Fatal(err)
			}
			c.nodes = c.nodes[:2]
			for _, n := range c.nodes {
				c.start(n, programs, "--routing", routing)
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
			serveEcho(t, c.lab.Place(pod), netip.AddrPortFrom(pod.Addresses[0], 80))
			places := map[string]topology.Place{"the world": world.Place(), "own node": n.Place(), "the pod itself": c.lab.Place(pod)}
			if fromCluster {
				places["other node"] = c.nodes[1].Place()
				places["pod of the node"] = c.lab.Place(c.addPod(n, "near"))
				places["pod of another node"] = c.lab.Place(c.addPod(c.nodes[1], "far"))
			}
			mapped := netip.AddrPortFrom(n.Addresses[0].Addr(), 8080)
			for name, place := range places {
				if err := askEcho(place, mapped); err != nil {
					t.Errorf("from %s to %s: %v", name, mapped, err)
				}
			}
			if err := network.del(t.Context(), conf); err != nil {
				t.Error(err)
			}
			if err := askEcho(world.Place(), mapped); err == nil {
				t.Error("the port still answers after DEL")
			}
		})
	}
}

// serveEcho answers TCP connections until the test ends.
func serveEcho(t *testing.T, place topology.Place, at netip.AddrPort) {
	t.Helper()
	err := place.Do(func() error {
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
					_, _ = io.Copy(conn, conn) // the client notices what is missing
				}()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// askEcho asks once over a new TCP connection.
func askEcho(place topology.Place, at netip.AddrPort) error {
	return place.Do(func() error {
		conn, err := net.DialTimeout("tcp", at.String(), transferTime)
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

// TestBandwidthChained proves that the plugin bandwidth limits what a pod sends and receives through the host's
// stack. With eBPF routing packets between pods pass by its queues, see docs/operations.md.
func TestBandwidthChained(t *testing.T) {
	t.Parallel()
	needPlugins(t, bandwidth)
	for routing, pairs := range map[string]bool{"ebpf": false, "kernel": true} {
		t.Run(routing, func(t *testing.T) {
			c := up(t, topology.Options{}, "--routing", routing)
			n := c.nodes[0]
			network, pod := c.network(n, current(t), "1.0.0", bandwidth), c.newPod(n, "slow")
			conf := runtimeConf(pod)
			const rate = 8 << 20 // bits each second
			conf.CapabilityArgs = map[string]any{"bandwidth": map[string]any{
				"ingressRate": rate, "ingressBurst": rate / 8, "egressRate": rate, "egressBurst": rate / 8,
			}}
			if _, err := network.add(t.Context(), pod, conf); err != nil {
				t.Fatal(err)
			}
			ways := [][2]*topology.Pod{{pod, asPod(n, pod)}, {asPod(n, pod), pod}}
			if pairs {
				far := c.addPod(c.nodes[1], "far")
				ways = append(ways, [2]*topology.Pod{pod, far}, [2]*topology.Pod{far, pod})
			}
			for _, way := range ways {
				begin := time.Now()
				if _, err := transfer(c.lab.Place(way[0]), c.lab.Place(way[1]), way[1].Addresses[0]); err != nil {
					t.Error(err)
				}
				// 512 KiB take half a second at this rate; an eighth of it may pass at once.
				if took := time.Since(begin); took < 300*time.Millisecond {
					t.Errorf("%s to %s took %s", way[0].Name, way[1].Name, took)
				}
			}
			if err := network.del(t.Context(), conf); err != nil {
				t.Error(err)
			}
			c.waitNoTraces(n)
		})
	}
}
