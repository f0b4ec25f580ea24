package ippools

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

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
		if got, err := p.Device(t.Context(), agentapi.PrepareRequest{Pod: ref}); got != want || err != nil || s.asked != asked {
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
	of, err := p.Device(t.Context(), agentapi.PrepareRequest{Pod: agentapi.PodRef{Namespace: "shop", Name: "web", UID: uid}})
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

// The network configuration of an interface decides before the pod's annotation, and each interface has addresses of its
// own: DEL of one releases only these.
func TestPoolsOfInterfaces(t *testing.T) {
	p, s := withServer(t)
	pools := []*cluster.IPPool{
		pool("annotated", "192.0.2.1", nil), pool("rack", "198.51.100.1", func(p *cluster.IPPool) {
			p.Routes = []cluster.IPPoolRoute{{To: netip.MustParsePrefix("203.0.113.0/24"), Via: netip.MustParseAddr("198.51.100.9")}}
		}), pool("theirs", "192.0.2.9", func(p *cluster.IPPool) { p.Namespaces = selector("team", "b") }),
	}
	web := &cluster.Pod{Namespace: "shop", Name: "web", UID: cluster.NewUID(uid), IPPools: "annotated"}
	p.update(t, &cluster.Snapshot{IPPools: pools, Pods: cluster.ListOf(web)})
	add := func(ifName, named string) (*agentapi.AddRequest, error) {
		e := endpointOf("c1", "web", uid)
		e.IfName, e.IPPool = ifName, named
		err := p.Allocate(t.Context(), e)
		return e, errors.Join(err, func() error {
			if err != nil {
				return nil
			}
			return p.Commit(e.Attachment)
		}())
	}
	first, err := add("eth0", "")
	if err != nil || first.Pool != "annotated" {
		t.Fatalf("eth0: %+v, %v", first, err)
	}
	second, err := add("net1", "rack")
	if err != nil || second.Pool != "rack" || fmt.Sprint(second.Networks) != "[198.51.100.0/24 203.0.113.0/24]" {
		t.Fatalf("net1: %+v, %v", second, err)
	}
	if e, err := add("net2", "theirs"); !agentapi.HasCode(err, agentapi.CodeNoPool) || !strings.Contains(err.Error(), `field "ipPool" of the network configuration: the selectors of IPPool theirs`) {
		t.Errorf("the pool of another tenant: %+v, %v", e, err)
	}
	if e, err := add("net3", "none"); err != nil && !strings.Contains(err.Error(), "was deleted within") || e.Pool != "" {
		t.Errorf("no pool: %+v, %v", e, err)
	}
	p.Release(second.Attachment)
	for deadline := time.Now().Add(10 * time.Second); len(s.All()) != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("claims after DEL of net1: %+v", s.All())
		}
	}
	if c := s.All()[0]; c.Address != first.Addresses[0] || c.IfName != "eth0" {
		t.Errorf("the claim that is left: %+v", c)
	}
	p.update(t, &cluster.Snapshot{Incomplete: true})
	lost := endpointOf("c2", "other", "c59a9d38-4e43-4ba9-a5f0-5a5d1d7b7a11")
	lost.IPPool = "rack"
	if err := p.Allocate(t.Context(), lost); !agentapi.HasCode(err, agentapi.CodeNoPool) {
		t.Errorf("a network whose pool does not exist: %v", err)
	}
}
