package ippools

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/beeline-cni/beeline/internal/agent/poddevice"
	"github.com/beeline-cni/beeline/internal/agentapi"
	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ipclaim/files"
	"github.com/beeline-cni/beeline/internal/ipclaim/memory"
)

// server is an API server with pods, claims and status.
type server struct {
	*memory.Store
	pods   map[cluster.Key]*cluster.Pod
	asked  int
	status []cluster.IPPoolStatus
}

func (s *server) Pod(_ context.Context, key cluster.Key) (*cluster.Pod, error) {
	s.asked++
	return s.pods[key], nil
}
func (s *server) NodeGone(context.Context, string) (bool, error) { return false, nil }
func (s *server) Ordinals(context.Context, cluster.Key) (first, count int, err error) {
	return 0, 0, nil
}
func (s *server) WriteStatus(_ context.Context, status cluster.IPPoolStatus) error {
	s.status = append(s.status, status)
	return nil
}

// pool makes a pool of two addresses.
func pool(name, first string, change func(*cluster.IPPool)) *cluster.IPPool {
	from := netip.MustParseAddr(first)
	p := &cluster.IPPool{Name: name, Subnets: []netip.Prefix{netip.PrefixFrom(from, 24).Masked()}, Ranges: []netipx.IPRange{netipx.IPRangeFrom(from, from.Next())}}
	if change != nil {
		change(p)
	}
	return p
}

func labels(key, value string) cluster.Labels {
	return cluster.NewLabels(map[string]string{key: value})
}

func selector(key, value string) *cluster.Selector {
	return &cluster.Selector{Requirements: []cluster.Requirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}}}}
}

const uid = "b59a9d38-4e43-4ba9-a5f0-5a5d1d7b7a11"

// running are Pools that run until the test ends.
func running(t *testing.T, o Options) *Pools {
	o.Node, o.Log, o.StateDir = "n1", slog.New(slog.DiscardHandler), t.TempDir()
	p := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

func withServer(t *testing.T) (*Pools, *server) {
	s := &server{Store: memory.New(), pods: map[cluster.Key]*cluster.Pod{}}
	return running(t, Options{Server: s}), s
}

func (p *Pools) update(t *testing.T, s *cluster.Snapshot) {
	t.Helper()
	s.Nodes = []cluster.Node{{Name: "n1", Labels: labels("rack", "1")}}
	if s.Namespaces == nil {
		s.Namespaces = []*cluster.Namespace{{Name: "shop", Labels: labels("team", "a")}}
	}
	p.Update(s)
	for deadline := time.Now().Add(10 * time.Second); len(s.IPPools) > 0 && !p.allocator.Synced(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("claims are not synced")
		}
	}
}

func endpointOf(container, pod, uid string) *agentapi.AddRequest {
	return &agentapi.AddRequest{Endpoint: agentapi.Endpoint{
		Attachment: agentapi.Attachment{ContainerID: container, IfName: "eth0"}, Pod: agentapi.PodRef{Namespace: "shop", Name: pod, UID: uid},
	}}
}

// A pod gets an address of its pool, by what the snapshot says of the pod, or else by what the server says.
func TestAllocate(t *testing.T) {
	p, s := withServer(t)
	if err := p.Allocate(t.Context(), endpointOf("c1", "web", uid)); !agentapi.HasCode(err, agentapi.CodeNotReady) {
		t.Errorf("before the first snapshot: %v", err)
	}
	p.update(t, &cluster.Snapshot{Unknown: cluster.Kinds{cluster.KindIPPool}})
	if err := p.Allocate(t.Context(), endpointOf("c1", "web", uid)); !agentapi.HasCode(err, agentapi.CodeNotReady) {
		t.Errorf("before the pools are known: %v", err)
	}
	p.update(t, &cluster.Snapshot{})
	if e := endpointOf("c1", "web", uid); p.Allocate(t.Context(), e) != nil || e.Pool != "" || s.asked > 0 {
		t.Errorf("without pools: %+v, the server was asked %d times", e, s.asked)
	}
	web := &cluster.Pod{Namespace: "shop", Name: "web", UID: cluster.NewUID(uid), Labels: labels("app", "web"), StatefulSet: "set"}
	snapshot := &cluster.Snapshot{IPPools: []*cluster.IPPool{pool("office", "192.0.2.1", func(p *cluster.IPPool) { p.Pods, p.Nodes = selector("app", "web"), selector("rack", "1") })}}
	p.update(t, snapshot)
	if err := p.Allocate(t.Context(), endpointOf("c1", "web", uid)); !agentapi.HasCode(err, agentapi.CodeNotReady) || s.asked != 1 {
		t.Errorf("a pod that the server does not have: %v", err)
	}
	s.pods[web.Key()] = web
	e := endpointOf("c1", "web", uid)
	if err := p.Allocate(t.Context(), e); err != nil || e.Pool != "office" || len(e.Addresses) != 1 || e.StatefulSet != "set" {
		t.Errorf("a pod that only the server has: %+v, %v", e, err)
	}
	if err := p.Allocate(t.Context(), endpointOf("c1", "web", uid)); !agentapi.HasCode(err, agentapi.CodeConflict) {
		t.Errorf("a second ADD: %v", err)
	}
	asked, second := s.asked, *snapshot
	other := &cluster.Pod{Namespace: "shop", Name: "other", UID: cluster.NewUID("u2"), Labels: labels("app", "web")}
	second.Pods = cluster.ListOf(other)
	p.update(t, &second)
	e = endpointOf("c2", "other", "u2")
	if err := p.Allocate(t.Context(), e); err != nil || e.Pool != "office" || s.asked != asked {
		t.Errorf("a pod of the snapshot: %+v, %v, asked %d times", e, err, s.asked-asked)
	}
	if err := p.Allocate(t.Context(), endpointOf("c3", "other", "")); !agentapi.HasCode(err, agentapi.CodePoolExhausted) {
		t.Errorf("of an exhausted pool: %v", err)
	}
	if e := endpointOf("c4", "static", "0123456789abcdef"); p.Allocate(t.Context(), e) != nil || e.Pool != "" || s.asked != asked {
		t.Errorf("a static pod without a mirror: %+v", e)
	}
	unknown := endpointOf("c5", "x", "")
	unknown.Pod.Namespace = "new"
	if err := p.Allocate(t.Context(), unknown); !agentapi.HasCode(err, agentapi.CodeNotReady) {
		t.Errorf("a pod of a namespace that is not synced: %v", err)
	}
}

// The annotation of a pod that names no usable pool is an error, never another address.
func TestAnnotation(t *testing.T) {
	p, _ := withServer(t)
	web := &cluster.Pod{Namespace: "shop", Name: "web", UID: cluster.NewUID("u"), IPPools: "office"}
	p.update(t, &cluster.Snapshot{Pods: cluster.ListOf(web)})
	if err := p.Allocate(t.Context(), endpointOf("c1", "web", "u")); !agentapi.HasCode(err, agentapi.CodeNoPool) || !strings.Contains(err.Error(), `pod shop/web: annotation networking.beeline.dev/ippool of the pod: there is no IPPool "office"`) {
		t.Errorf("without pools: %v", err)
	}
	p.update(t, &cluster.Snapshot{Pods: cluster.ListOf(web), IPPools: []*cluster.IPPool{pool("office", "192.0.2.1", func(p *cluster.IPPool) { p.Device = "netkit" })}})
	if of, err := p.Device(t.Context(), agentapi.PrepareRequest{Pod: agentapi.PodRef{Namespace: "shop", Name: "web", UID: "u"}}); of != (poddevice.Pod{Pool: "office", OfPool: "netkit"}) || err != nil {
		t.Errorf("the device is of %+v, %v", of, err)
	}
}

// A macvlan device is on the uplink of the first pool: a pod that has one gets no address of a pool with other devices, even if the first
// pool is exhausted.
func TestMacvlanStaysOnItsLink(t *testing.T) {
	p, _ := withServer(t)
	web := &cluster.Pod{Namespace: "shop", Name: "web", UID: cluster.NewUID("u"), IPPools: "wire,office"}
	other := &cluster.Pod{Namespace: "shop", Name: "other", UID: cluster.NewUID("o"), IPPools: "wire"}
	wire := pool("wire", "192.0.2.1", func(p *cluster.IPPool) { p.Device = "macvlan" })
	p.update(t, &cluster.Snapshot{Pods: cluster.ListOf(other, web), IPPools: []*cluster.IPPool{wire, pool("office", "198.51.100.1", func(*cluster.IPPool) {})}})
	for i := range 10 { // until the pool is exhausted
		if err := p.Allocate(t.Context(), endpointOf(fmt.Sprint("o", i), "other", "o")); err != nil {
			break
		}
	}
	e := endpointOf("c1", "web", "u")
	e.Macvlan = &agentapi.Macvlan{Parent: 1}
	if err := p.Allocate(t.Context(), e); !agentapi.HasCode(err, agentapi.CodePoolExhausted) {
		t.Errorf("a pod with a macvlan device got %v of IPPool %q: %v", e.Addresses, e.Pool, err)
	}
	e.Macvlan = nil
	if err := p.Allocate(t.Context(), e); err != nil || e.Pool != "office" {
		t.Errorf("a pod with another device got %v of IPPool %q: %v", e.Addresses, e.Pool, err)
	}
}

// Without an API server claims are files, and an endpoint of an earlier agent keeps its own.
func TestWithoutServer(t *testing.T) {
	dir := t.TempDir()
	open := func() *Pools {
		store, err := files.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return running(t, Options{Files: store})
	}
	snapshot := func() *cluster.Snapshot {
		return &cluster.Snapshot{IPPools: []*cluster.IPPool{pool("office", "192.0.2.1", func(p *cluster.IPPool) { p.Default = true })}}
	}
	p := open()
	p.update(t, snapshot())
	first, second := endpointOf("c1", "", ""), endpointOf("c2", "", "")
	for _, e := range []*agentapi.AddRequest{first, second} {
		if err := p.Allocate(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Commit(first.Attachment); err != nil {
		t.Fatal(err)
	}
	next := open() // the first one died within the ADD of c2
	next.Adopt(first.Endpoint)
	next.update(t, snapshot())
	third := endpointOf("c3", "", "")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		err := next.Allocate(t.Context(), third)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if third.Addresses[0] != second.Addresses[0] {
		t.Errorf("c1 has %v, c2 had %v, and c3 has %v", first.Addresses, second.Addresses, third.Addresses)
	}
	want := []agentapi.IPPool{{
		Name: "office", Subnets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Default: true,
		Families: []agentapi.IPPoolUse{{Family: "IPv4", Total: 2, Allocated: 2}},
	}}
	if diff := cmp.Diff(want, next.List(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// The status of a pool is written when it changes.
func TestReport(t *testing.T) {
	p, s := withServer(t)
	p.update(t, &cluster.Snapshot{IPPools: []*cluster.IPPool{
		pool("a", "192.0.2.1", func(p *cluster.IPPool) { p.Default = true }),
		pool("b", "192.0.2.2", nil),
		pool("c", "192.0.2.9", func(p *cluster.IPPool) { p.Invalid, p.Ranges = "spec.vlan: 9999 is not a VLAN", nil }),
	}})
	written := map[string]cluster.IPPoolStatus{}
	p.reportChanged(t.Context(), written)
	if diff := cmp.Diff([]cluster.IPPoolStatus{
		{Name: "a", IPv4: &cluster.IPPoolCounts{Total: 2, Free: 2}},
		{Name: "b", IPv4: &cluster.IPPoolCounts{Total: 1, Free: 1}, Overlaps: "IPPool a, which is older, has a part of its addresses"},
		{Name: "c", IPv4: &cluster.IPPoolCounts{}, Invalid: "spec.vlan: 9999 is not a VLAN"},
	}, s.status); diff != "" {
		t.Errorf("the first status (-want +got):\n%s", diff)
	}
	s.status = nil
	if p.reportChanged(t.Context(), written); len(s.status) > 0 {
		t.Errorf("without a change: %+v", s.status)
	}
	for _, container := range []string{"c1", "c2"} {
		if err := p.Allocate(t.Context(), endpointOf(container, "static", "0123")); err != nil {
			t.Fatal(err)
		}
	}
	if p.reportChanged(t.Context(), written); len(s.status) != 1 || *s.status[0].IPv4 != (cluster.IPPoolCounts{Total: 2, Allocated: 2}) || s.status[0].Exhausted() != "no IPv4 address is free" {
		t.Errorf("when pool a is exhausted: %+v", s.status)
	}
}

// An agent that starts without its API server gives pods addresses of the node's range, unless the cluster had pools.
func TestStartWithoutServer(t *testing.T) {
	incomplete := &cluster.Snapshot{Incomplete: true, Unknown: cluster.Kinds{cluster.KindIPPool}}
	dir := t.TempDir()
	agent := func() *Pools {
		s := &server{Store: memory.New(), pods: map[cluster.Key]*cluster.Pod{}}
		return New(Options{Node: "n1", StateDir: dir, Server: s, Log: slog.New(slog.DiscardHandler)})
	}
	e := endpointOf("c1", "web", "u1")
	without := func(step string, works bool) {
		t.Helper()
		p := agent()
		p.Update(incomplete)
		if err := p.Allocate(t.Context(), e); (err == nil) != works || e.Pool != "" {
			t.Errorf("%s: %v, pool %q, want it to work: %t", step, err, e.Pool, works)
		}
	}
	without("the first start", true)
	p := agent()
	p.Update(incomplete)
	p.Update(&cluster.Snapshot{})
	without("after a start in a cluster without pools", true)
	p.Update(&cluster.Snapshot{IPPools: []*cluster.IPPool{pool("office", "192.0.2.10", func(*cluster.IPPool) {})}})
	without("after a start in a cluster with pools", false)
	p.Update(&cluster.Snapshot{})
	without("after the last pool was deleted", true)
}
