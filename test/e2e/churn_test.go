package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/lab/testbed"
)

// TestChurnWithKill adds and deletes fifty pods at once, kills the agent in the middle and starts it again. No two
// pods have the same address, and nothing is left at the end.
func TestChurnWithKill(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{IPv6: true})
	n := c.nodes[0]
	network := c.standard(n)
	pods := make([]*testbed.Pod, 50)
	for i := range pods {
		pods[i] = c.newPod(n, fmt.Sprintf("pod-%02d", i))
	}

	// Of each three pods one stays, one is deleted and added again, one is deleted. The agent is killed when a third
	// of the calls have ended.
	var churn sync.WaitGroup
	var mu sync.Mutex
	ended, middle := 0, make(chan struct{})
	count := func() {
		mu.Lock()
		defer mu.Unlock()
		if ended++; ended == len(pods)/3 {
			close(middle)
		}
	}
	live := make([]bool, len(pods))
	errs := make([]error, len(pods))
	slots := make(chan struct{}, 10) // as many calls at once as a busy runtime makes
	for i, pod := range pods {
		churn.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			defer count()
			live[i], errs[i] = network.churn(t.Context(), pod, i%3)
		})
	}
	<-middle
	c.kill(n)
	c.start(n, current(t))
	churn.Wait()
	c.waitReady(n)

	var alive []*testbed.Pod
	failed := 0
	for i, pod := range pods {
		if errs[i] != nil {
			failed++
		}
		var cniErr *types.Error
		if errs[i] != nil && (!errors.As(errs[i], &cniErr) || cniErr.Code != codeTryAgainLater) {
			t.Errorf("%s: %v, want success or code %d", pod.Name, errs[i], codeTryAgainLater)
		}
		if live[i] {
			alive = append(alive, pod)
		}
	}
	t.Logf("%d pods have a network, %d calls failed without an agent", len(alive), failed)
	if len(alive) == 0 {
		t.Fatal("no pod has a network")
	}
	c.distinct(alive)
	eventually(t, func() error { return c.onlyDevices(n, len(alive)) })
	eventually(t, func() error { return c.onlyEndpoints(n, len(alive)) })
	c.wantTraces(n, alive...)
	peer := c.addPod(c.nodes[1], "peer")
	for _, pod := range alive {
		if err := c.reach(peer, pod); err != nil {
			t.Error(err)
		}
	}

	// The new agent assigns no address that is in use.
	for i, pod := range pods {
		if live[i] {
			continue
		}
		if _, err := network.add(t.Context(), pod, runtimeConf(pod)); err != nil {
			t.Errorf("ADD of %s after the churn: %v", pod.Name, err)
		}
	}
	c.distinct(pods)
	for _, pod := range pods {
		churn.Go(func() {
			if err := network.del(t.Context(), runtimeConf(pod)); err != nil {
				t.Errorf("DEL of %s: %v", pod.Name, err)
			}
		})
	}
	churn.Wait()
	c.waitNoTraces(n)
}

// churn adds a pod. Kind 1 deletes it and adds it again, kind 2 deletes it. live reports whether the pod has a network
// in the end; err has the errors of ADDs.
func (w network) churn(ctx context.Context, pod *testbed.Pod, kind int) (live bool, err error) {
	conf := runtimeConf(pod)
	add := func() bool {
		_, failed := w.add(ctx, pod, conf)
		err = errors.Join(err, failed)
		return failed == nil
	}
	live = add()
	if kind == 0 {
		return live, err
	}
	if failed := w.del(ctx, conf); failed != nil {
		return live, errors.Join(err, fmt.Errorf("DEL: %w", failed))
	}
	if kind == 2 {
		return false, err
	}
	return add(), err
}

// onlyDevices checks the number of pod devices on the node: a failed ADD leaves none.
func (c *cluster) onlyDevices(n *node, count int) error {
	devices, err := hostDevices(n)
	if err == nil && len(devices) != count {
		err = fmt.Errorf("%d devices for %d pods: %v", len(devices), count, devices)
	}
	return err
}

// TestLateRequests sends requests about a device that is gone, as a stuck or starting agent reads them. The container
// has a new device of the same name, which stays, with its endpoint.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	c := up(t, testbed.Options{})
	n := c.nodes[0]
	pod, peer := c.addPod(n, "again"), c.addPod(n, "peer")
	all, err := n.api().Endpoints(t.Context())
	i := slices.IndexFunc(all, func(e agentapi.Endpoint) bool { return slices.Equal(e.Addresses, pod.Addresses) })
	if err != nil || i < 0 {
		t.Fatalf("endpoints are %+v: %v", all, err)
	}
	e := all[i]
	stale := e.HostIfIndex + 1000
	for _, index := range []int{stale, agentapi.NoDevice} {
		if err := n.api().Delete(t.Context(), agentapi.DeleteRequest{Attachment: e.Attachment, HostIfIndex: index}); err != nil {
			t.Errorf("a late DEL of device %d: %v", index, err)
		}
	}
	_, err = n.api().Add(t.Context(), agentapi.AddRequest{Endpoint: agentapi.Endpoint{
		Attachment: e.Attachment, Network: e.Network, Netns: e.Netns, HostDevice: e.HostDevice, HostIfIndex: stale, HostMAC: e.HostMAC, PodMAC: e.PodMAC,
	}})
	if !agentapi.HasCode(err, agentapi.CodeInvalid) {
		t.Errorf("a late ADD: %v, want code %v", err, agentapi.CodeInvalid)
	}
	c.wantTraces(n, pod, peer)
	if err := c.reach(peer, pod); err != nil {
		t.Error(err)
	}
	if err := n.api().Delete(t.Context(), agentapi.DeleteRequest{Attachment: e.Attachment, HostIfIndex: e.HostIfIndex}); err != nil {
		t.Error(err)
	}
	c.wantTraces(n, peer)
}
