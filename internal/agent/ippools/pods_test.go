package ippools

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/beeline-cni/beeline/internal/agent/poddevice"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
)

// What a pod says about its device is read from the server where no snapshot has it, once for an ADD.
func TestDeviceOfPod(t *testing.T) {
	p, s := withServer(t)
	ref := agentapi.PodRef{Namespace: "shop", Name: "vm", UID: uid}
	vm := &cluster.Pod{Namespace: "shop", Name: "vm", UID: cluster.NewUID(uid), Device: "veth", RuntimeClass: "kata", Labels: labels("app", "vm")}
	expect := func(step string, want poddevice.Pod, asked int) {
		t.Helper()
		s.asked = 0
		if got, err := p.Device(t.Context(), ref); got != want || err != nil || s.asked != asked {
			t.Errorf("%s: %+v, %v, asked %d times; want %+v, %d times", step, got, err, s.asked, want, asked)
		}
	}
	p.update(t, &cluster.Snapshot{})
	expect("the server does not have it", poddevice.Pod{Unknown: true}, 1)
	s.pods[vm.Key()] = vm
	of := poddevice.Pod{Annotation: "veth", RuntimeClass: "kata"}
	expect("only the server has it", of, 1)
	expect("the same ADD asks again", of, 0)
	if err := p.Allocate(t.Context(), endpointOf("c1", "vm", uid)); err != nil || s.asked != 0 {
		t.Errorf("addresses without pools: %v, asked %d times", err, s.asked)
	}
	expect("the next ADD", of, 1)
	p.pods.forget(uid)
	p.update(t, &cluster.Snapshot{Pods: cluster.ListOf(vm)})
	expect("the snapshot has it", of, 0)
	p.update(t, &cluster.Snapshot{Incomplete: true})
	expect("the server is away", poddevice.Pod{Unknown: true}, 0)

	p.update(t, &cluster.Snapshot{IPPools: []*cluster.IPPool{pool("office", "192.0.2.1", func(p *cluster.IPPool) { p.Pods, p.Device = selector("app", "vm"), "macvlan" })}})
	of.Pool, of.OfPool = "office", "macvlan"
	expect("with a pool", of, 1)
	if err := p.Allocate(t.Context(), endpointOf("c1", "vm", uid)); err != nil || s.asked != 1 {
		t.Errorf("addresses of a pool: %v, asked %d times", err, s.asked)
	}
	ref = agentapi.PodRef{Namespace: "shop", Name: "static", UID: "0123456789abcdef"}
	expect("a static pod without a mirror", poddevice.Pod{}, 0)
}

// A server that does not answer leaves an ADD without IPPools in time for the plugin, with a device that suits every pod.
func TestDeviceWithoutAnswer(t *testing.T) {
	p := running(t, Options{Server: &silent{}})
	p.update(t, &cluster.Snapshot{})
	of, err := p.Device(t.Context(), agentapi.PodRef{Namespace: "shop", Name: "web", UID: uid})
	if err != nil || !of.Unknown {
		t.Errorf("%+v, %v", of, err)
	}
}

// silent is a server that does not answer.
type silent struct{ server }

func (*silent) Pod(ctx context.Context, _ cluster.Key) (*cluster.Pod, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("get pod: %w", errors.Join(context.Cause(ctx)))
}

// The cache of pods is bounded.
func TestPodCacheIsBounded(t *testing.T) {
	var c podCache
	for i := range 10 * podsMax {
		c.put(fmt.Sprint(i), &cluster.Pod{})
	}
	if len(c.all) > podsMax || c.get(fmt.Sprint(10*podsMax-1)) == nil {
		t.Errorf("%d pods", len(c.all))
	}
}
