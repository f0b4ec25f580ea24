package cni_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"github.com/beeline-cni/beeline/internal/agentapi"
)

func TestInterfaceNameTakenInThePod(t *testing.T) {
	b := newBench(t)
	rt, _ := b.pod("web")
	rt.IfName = "lo"
	_, err := b.add(b.list("1.1.0"), rt)
	wantCode(t, err, 100, "file exists")
	b.expectEmpty()
}

// The failing steps of ADD with real devices; TestAddUndoesEveryStep has all steps with devices in memory.

func TestPodCannotBeConfigured(t *testing.T) {
	b := newBench(t)
	b.agent.mtu = 1 << 20 // more than a veth can have
	rt, netns := b.pod("web")
	_, err := b.add(b.list("1.1.0"), rt)
	wantCode(t, err, types.ErrInternal, "set MTU of eth0")
	b.expectEmpty()
	expectNoInterface(t, netns)
}

func TestResultCannotBePrinted(t *testing.T) {
	b := newBench(t)
	rt, netns := b.pod("web")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	err = b.do(func() error {
		plugin := b.command("beeline-cni", "ADD", rt, string(b.single(b.list("1.1.0"))))
		plugin.Stdout = full
		return plugin.Run()
	})
	if err == nil {
		t.Error("ADD succeeded without printing its result")
	}
	if adds := b.agent.asked(); adds != 1 {
		t.Errorf("the agent was asked %d times, the result was not the step that failed", adds)
	}
	b.expectEmpty()
	expectNoInterface(t, netns)
}

func TestAgentKilledDuringAdd(t *testing.T) {
	b := newBench(t)
	b.agent.during = func() { b.server.Close() }
	rt, netns := b.pod("web")
	_, err := b.add(b.list("1.1.0"), rt)
	wantCode(t, err, types.ErrTryAgainLater, "connection lost")
	expectNoInterface(t, netns)
	// The agent is back and drops the endpoint, which has no device.
	if err := b.agent.Delete(context.Background(), agentapi.DeleteRequest{Attachment: agentapi.Attachment{ContainerID: "web", IfName: "eth0"}}); err != nil {
		t.Error(err)
	}
	b.expectEmpty()
}

func expectNoInterface(t *testing.T, netns ns.NetNS) {
	t.Helper()
	err := netns.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		if len(links) != 1 {
			t.Errorf("interfaces are left in the pod: %v", links)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAgentErrors(t *testing.T) {
	b := newBench(t, netip.MustParsePrefix("10.77.0.0/30"))
	list := b.list("1.1.0")
	var pods []*libcni.RuntimeConf
	for i := range 2 {
		rt, _ := b.pod(fmt.Sprint("web", i))
		if _, err := b.add(list, rt); err != nil {
			t.Fatal(err)
		}
		pods = append(pods, rt)
	}
	rt, _ := b.pod("late")
	_, err := b.add(list, rt)
	wantCode(t, err, 101, "all 2 are in use, 2 by namespace default")
	b.agent.fallSick(agentapi.Errorf(agentapi.CodeNotReady, "node a is not in the manifests"))
	_, err = b.add(list, rt)
	wantCode(t, err, types.ErrTryAgainLater, "node a is not in the manifests")
	err = b.do(func() error { return b.cni.GetStatusNetworkList(context.Background(), list) })
	wantCode(t, err, types.ErrPluginNotAvailable, "node a is not in the manifests")
	b.agent.fallSick(nil)
	for _, rt := range pods {
		if err := b.del(list, rt); err != nil {
			t.Error(err)
		}
	}
	b.expectEmpty()
}

func TestConcurrentPods(t *testing.T) {
	b := newBench(t)
	list := b.list("1.1.0")
	const pods = 20
	var wg sync.WaitGroup
	seen := make(chan string, 2*pods)
	for i := range pods {
		rt, _ := b.pod(fmt.Sprint("web", i))
		wg.Go(func() {
			for range 2 {
				raw, err := b.add(list, rt)
				if err != nil {
					t.Error(err)
					return
				}
				if i%2 == 0 { // these come and go
					if err := b.del(list, rt); err != nil {
						t.Error(err)
					}
					continue
				}
				result, err := current.NewResultFromResult(raw)
				if err != nil {
					t.Error(err)
					return
				}
				seen <- result.IPs[0].Address.String()
				return
			}
		})
	}
	wg.Wait()
	close(seen)
	addresses := map[string]bool{}
	for address := range seen {
		if addresses[address] {
			t.Errorf("%s was handed out twice", address)
		}
		addresses[address] = true
	}
	if len(addresses) != pods/2 || len(b.agent.known()) != pods/2 {
		t.Errorf("%d addresses, %d endpoints, want %d", len(addresses), len(b.agent.known()), pods/2)
	}
	for i := 1; i < pods; i += 2 {
		if err := b.del(list, &libcni.RuntimeConf{ContainerID: fmt.Sprint("web", i), IfName: "eth0"}); err != nil {
			t.Error(err)
		}
	}
	b.expectEmpty()
}
