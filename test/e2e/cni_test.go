package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/lab/testbed"
)

// Error codes of the CNI specification and of this plugin.
const (
	codeTryAgainLater = types.ErrTryAgainLater
	codeNotAvailable  = types.ErrPluginNotAvailable
	codeExists        = 100
	codeExhausted     = 101
)

// TestSpecVersions adds, checks and deletes a pod in each version of the CNI specification.
func TestSpecVersions(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	peer := c.addPod(c.nodes[1], "peer")
	n := c.nodes[0]
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			network := c.network(n, current(t), version)
			pod := c.newPod(n, "pod-"+strings.ReplaceAll(version, ".", "-"))
			conf := runtimeConf(pod)
			result, err := network.add(t.Context(), pod, conf)
			if err != nil {
				t.Fatalf("ADD: %v", err)
			}
			if len(result.IPs) != 2 || len(result.Interfaces) == 0 || len(result.Routes) == 0 {
				t.Errorf("ADD gives %d addresses, %d interfaces, %d routes: %+v", len(result.IPs), len(result.Interfaces), len(result.Routes), result)
			}
			if err := c.reach(pod, peer); err != nil {
				t.Error(err)
			}
			if version != "0.3.1" { // 0.3.1 has no CHECK
				if err := network.CNI.CheckNetworkList(t.Context(), network.List, conf); err != nil {
					t.Errorf("CHECK: %v", err)
				}
			}
			_, err = network.CNI.AddNetworkList(t.Context(), network.List, conf)
			wantCode(t, "second ADD", err, codeExists, "DEL it first")
			if err := c.reach(peer, pod); err != nil {
				t.Errorf("after the second ADD: %v", err)
			}
			for range 2 {
				if err := network.del(t.Context(), conf); err != nil {
					t.Errorf("DEL: %v", err)
				}
				c.waitNoTraces(n)
			}
		})
	}
}

// TestCheckFindsDamage removes the pod's address: CHECK fails.
func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	network, pod := c.standard(n), c.addPod(n, "pod")
	if err := network.CNI.CheckNetworkList(t.Context(), network.List, runtimeConf(pod)); err != nil {
		t.Fatalf("CHECK of a good pod: %v", err)
	}
	flushAddresses(t, pod.Netns)
	if err := network.CNI.CheckNetworkList(t.Context(), network.List, runtimeConf(pod)); err == nil {
		t.Error("CHECK of a pod without its address succeeds")
	}
}

// TestGarbageCollection removes the pods that the runtime does not list, and no others.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	network := c.standard(n)
	kept, forgotten := c.addPod(n, "kept"), c.addPod(n, "forgotten")
	// Without libcni's cache the plugin has to find the pods itself.
	if err := os.RemoveAll(filepath.Join(n.StateDir, "cni-cache")); err != nil {
		t.Fatal(err)
	}
	valid := []types.GCAttachment{{ContainerID: runtimeConf(kept).ContainerID, IfName: podInterface}}
	if err := network.CNI.GCNetworkList(t.Context(), network.List, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		t.Fatalf("GC: %v", err)
	}
	c.wantTraces(n, kept)
	peer := c.addPod(c.nodes[1], "peer")
	if err := c.reach(peer, kept); err != nil {
		t.Error(err)
	}
	if err := c.reach(peer, forgotten); err == nil {
		t.Error("the forgotten pod can still be reached")
	}
}

// TestDelWithoutNamespace deletes pods whose network namespace is gone, with and without the agent.
func TestDelWithoutNamespace(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	gone := c.addPod(n, "gone")
	if err := c.lab.DeletePod(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if err := c.standard(n).del(t.Context(), runtimeConf(gone)); err != nil {
		t.Errorf("DEL: %v", err)
	}
	c.waitNoTraces(n)

	alone := c.addPod(n, "alone")
	c.kill(n)
	if err := c.lab.DeletePod(t.Context(), alone); err != nil {
		t.Fatal(err)
	}
	if err := c.standard(n).del(t.Context(), runtimeConf(alone)); err != nil {
		t.Errorf("DEL without an agent: %v", err)
	}
	c.start(n, current(t))
	c.waitReady(n)
	c.waitNoTraces(n)
}

// TestWithoutAgent uses the plugin while no agent runs: ADD and STATUS fail with the reason, and DEL works. The next
// agent cleans up after the DEL.
func TestWithoutAgent(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	network, pod, late := c.standard(n), c.addPod(n, "pod"), c.newPod(n, "late")
	c.kill(n)

	_, err := network.add(t.Context(), late, runtimeConf(late))
	wantCode(t, "ADD without an agent", err, codeTryAgainLater, "agent is not running", n.socket(), "try again later")
	err = network.CNI.GetStatusNetworkList(t.Context(), network.List)
	wantCode(t, "STATUS without an agent", err, codeNotAvailable, "existing ones are not affected")
	for range 2 {
		if err := network.del(t.Context(), runtimeConf(pod)); err != nil {
			t.Errorf("DEL without an agent: %v", err)
		}
	}
	if devices, err := hostDevices(n); err != nil || len(devices) > 0 {
		t.Errorf("devices left: %v %v", devices, err)
	}

	c.start(n, current(t))
	c.waitReady(n)
	c.waitNoTraces(n)
	if err := network.CNI.GetStatusNetworkList(t.Context(), network.List); err != nil {
		t.Errorf("STATUS with the agent back: %v", err)
	}
	if _, err := network.add(t.Context(), late, runtimeConf(late)); err != nil {
		t.Errorf("ADD with the agent back: %v", err)
	}
}

// TestNodeWithoutObject starts an agent without a Node object: it reports the problem, and is ready when the object
// appears.
func TestNodeWithoutObject(t *testing.T) {
	t.Parallel()
	programs := current(t)
	c := newCluster(t, testbed.Options{})
	n := c.nodes[0]
	if err := os.Remove(c.manifestFile(n)); err != nil {
		t.Fatal(err)
	}
	c.start(n, programs)
	c.waitProblem(n, `"n1"`, "not among the 1 Node objects")
	network, pod := c.standard(n), c.newPod(n, "pod")
	_, err := network.add(t.Context(), pod, runtimeConf(pod))
	wantCode(t, "ADD", err, codeTryAgainLater, "not ready", `node "n1" is not among`)
	err = network.CNI.GetStatusNetworkList(t.Context(), network.List)
	wantCode(t, "STATUS", err, codeNotAvailable, `node "n1" is not among`)
	c.waitNoTraces(n)

	c.writeNode(n)
	c.waitReady(n)
	c.waitNoProblem(n)
	if _, err := network.add(t.Context(), pod, runtimeConf(pod)); err != nil {
		t.Errorf("ADD with the object there: %v", err)
	}
}

// TestExhaustion fills a small range: the error names the namespaces that use the addresses, and after one DEL one ADD
// succeeds.
func TestExhaustion(t *testing.T) {
	t.Parallel()
	programs := current(t)
	c := newCluster(t, testbed.Options{})
	n := c.nodes[0]
	n.object.Spec.PodCIDRs = []string{"10.77.1.0/29"}
	c.writeNode(n)
	c.start(n, programs)
	c.waitReady(n)
	status := c.status(n)
	if len(status.Pools) != 1 || status.Pools[0].Free < 5 || status.Pools[0].Free > 8 {
		t.Fatalf("pools of a /29: %+v", status.Pools)
	}
	var pods []*testbed.Pod
	for i := range status.Pools[0].Free {
		pods = append(pods, c.addPod(n, "pod-"+string(rune('a'+i))))
	}
	c.distinct(pods)

	network, extra := c.standard(n), c.newPod(n, "extra")
	conf := runtimeConf(extra)
	for range 2 {
		_, err := network.add(t.Context(), extra, conf)
		wantCode(t, "ADD to a full range", err, codeExhausted, "10.77.1.0/29", "all", "are in use", "by namespace default")
		c.wantTraces(n, pods...)
	}
	c.delPod(n, pods[2])
	if _, err := network.add(t.Context(), extra, conf); err != nil {
		t.Fatalf("ADD after a DEL: %v", err)
	}
	if extra.Addresses[0] != pods[2].Addresses[0] {
		t.Errorf("the only free address is %s, ADD gave %s", pods[2].Addresses[0], extra.Addresses[0])
	}
	if err := c.reach(extra, pods[0]); err != nil {
		t.Error(err)
	}
	_ = network.del(context.WithoutCancel(t.Context()), conf)
}
