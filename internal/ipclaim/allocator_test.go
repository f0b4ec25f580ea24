package ipclaim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ipclaim/memory"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// calm is a world without faults.
func calm(t *testing.T, nodes int) *simulation {
	w := newSimulation(t, 1, nodes)
	w.faults = false
	w.deliver()
	return w
}

// deliver lets all agents know all claims.
func (w *simulation) deliver() {
	for _, n := range w.nodes {
		n.watch.Deliver(n.agent, -1)
	}
}

func (w *simulation) passAll() {
	w.t.Helper()
	for range 2 {
		for _, n := range w.nodes {
			n.watch.Deliver(n.agent, -1)
			if err := n.agent.Pass(w.t.Context(), true); err != nil {
				w.t.Error(err)
			}
		}
	}
	w.deliver()
}

// webPod makes the pod web-0 of the StatefulSet web, anew with each uid.
func (w *simulation) webPod(uid string) Request {
	p := &cluster.Pod{Namespace: "shop", Name: "web-0", UID: cluster.NewUID(uid), StatefulSet: "web"}
	w.pods[p.Key()] = p
	return Request{Namespace: "shop", Pod: "web-0", PodUID: uid, StatefulSet: "web", Pools: w.pools.Pools}
}

func (n *node) mustAllocate(container string, r Request) []netip.Addr {
	n.t.Helper()
	att := Attachment{container, "eth0"}
	got, err := n.agent.Allocate(n.t.Context(), att, r)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.agent.Commit(att); err != nil {
		n.t.Fatal(err)
	}
	return got.Addresses
}

func (n *node) mustRelease(container string) {
	n.t.Helper()
	n.agent.Release(Attachment{container, "eth0"})
	if err := n.agent.Pass(n.t.Context(), false); err != nil {
		n.t.Fatal(err)
	}
}

// A pod of a StatefulSet gets the address again that the pod of that name had before, on any node, until the StatefulSet
// has no pod of that name.
func TestStatefulSetKeepsAddresses(t *testing.T) {
	w := calm(t, 3)
	w.sets[cluster.Key{Namespace: "shop", Name: "web"}] = 1
	first := w.nodes[0].mustAllocate("c1", w.webPod("u1"))
	w.nodes[0].mustRelease("c1")
	w.deliver()
	if second := w.nodes[1].mustAllocate("c2", w.webPod("u2")); !slices.Equal(first, second) || len(first) != 2 {
		t.Errorf("the pod had %v, and has %v on another node", first, second)
	}
	w.nodes[1].mustRelease("c2")
	delete(w.pods, cluster.Key{Namespace: "shop", Name: "web-0"})
	if w.passAll(); len(w.store.All()) != 2 {
		t.Errorf("claims of a StatefulSet that waits for its pod: %+v", w.store.All())
	}
	w.sets[cluster.Key{Namespace: "shop", Name: "web"}] = 0
	if w.passAll(); len(w.store.All()) != 0 {
		t.Errorf("claims beyond spec.replicas: %+v", *w.store.All()[0])
	}
}

// A pod that is forced away keeps its address until its container has ended, or its node is gone: the next pod of the
// name waits.
func TestForcedAway(t *testing.T) {
	w := calm(t, 2)
	first := w.nodes[0].mustAllocate("c1", w.webPod("u1"))
	w.deliver()
	next := w.webPod("u2")
	var used *InUseError
	if got, err := w.nodes[1].agent.Allocate(t.Context(), Attachment{"c2", "eth0"}, next); !errors.As(err, &used) {
		t.Fatalf("the next pod has %+v, %v", got, err)
	}
	if !strings.Contains(used.Error(), "node node-0") {
		t.Errorf("the error does not name the node: %v", used)
	}
	w.passAll()
	w.nodes[0].registered, w.nodes[0].up = false, false
	if second := w.nodes[1].mustAllocate("c3", next); !slices.Equal(first, second) {
		t.Errorf("the pod had %v, and has %v after its node is gone", first, second)
	}
}

// A DEL of an earlier container does not release the address that the pod's next one has taken over.
func TestLateDelete(t *testing.T) {
	w := calm(t, 1)
	n := w.nodes[0]
	first := n.mustAllocate("c1", w.webPod("u1"))
	n.agent.Release(Attachment{"c1", "eth0"}) // and the agent has no time for it
	if second := n.mustAllocate("c2", w.webPod("u1")); !slices.Equal(first, second) {
		t.Errorf("the pod had %v, and has %v in its next container", first, second)
	}
	n.mustRelease("c1")
	for _, c := range w.store.All() {
		if c.ContainerID != "c2" {
			t.Errorf("after the late DEL: %+v", *c)
		}
	}
	// The same container, added again before its DEL is executed.
	n.agent.Release(Attachment{"c2", "eth0"})
	n.mustAllocate("c2", w.webPod("u1"))
	if err := n.agent.Pass(t.Context(), true); err != nil || len(w.store.All()) != 2 {
		t.Errorf("an attachment that was added again has %d claims, %v", len(w.store.All()), err)
	}
}

// An ADD of a container begins while the agent executes the DEL of the one before with the same ID.
func TestAddWithinDelete(t *testing.T) {
	w := calm(t, 1)
	busy := &busyStore{Store: w.store}
	a := New(Options{Node: "n", Store: busy, Facts: w, Log: calmLog}, nil)
	a.Replace(nil)
	a.SetPools(w.pools)
	att, r := Attachment{"c1", "eth0"}, w.webPod("u1")
	r.StatefulSet = ""
	if _, err := a.Allocate(t.Context(), att, r); err != nil {
		t.Fatal(err)
	}
	if err := a.Commit(att); err != nil {
		panic(err)
	}
	busy.meanwhile = func() {
		if _, err := a.Allocate(t.Context(), att, r); err != nil {
			t.Error(err)
		}
		if err := a.Commit(att); err != nil {
			panic(err)
		}
	}
	a.Release(att)
	if err := a.release(t.Context()); err != nil || len(w.store.All()) != 2 {
		t.Errorf("the container has %d claims, %v", len(w.store.All()), err)
	}
}

// An ADD whose client has given up fails after a DEL and another ADD of the container: that one's pod keeps its addresses.
func TestAddAfterDelete(t *testing.T) {
	w := calm(t, 1)
	slow := &slowStore{Store: w.store}
	a := New(Options{Node: "n", Store: slow, Facts: w, Log: calmLog}, nil)
	a.together = inTurn
	a.Replace(nil)
	a.SetPools(w.pools)
	att, r := Attachment{"c1", "eth0"}, w.webPod("u1")
	r.StatefulSet = ""
	check := func(what string) {
		t.Helper()
		if err := a.release(t.Context()); err != nil || len(w.store.All()) != 2 || a.attachments[att] == nil || a.attachments[att].state != live {
			t.Errorf("%s: the container has %d claims, %+v, %v", what, len(w.store.All()), a.attachments[att], err)
		}
	}
	slow.meanwhile = func() {
		a.Release(att)
		if err := a.release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := a.Allocate(t.Context(), att, r); err != nil {
			t.Error(err)
		}
		if err := a.Commit(att); err != nil {
			t.Error(err)
		}
	}
	if _, err := a.Allocate(t.Context(), att, r); !errors.Is(err, errFault) {
		t.Errorf("the first ADD: %v", err)
	}
	check("Allocate fails late")
	a.Abandon(att)
	check("the first ADD fails after Allocate")
}

// slowStore does something else within the next creation, and fails then.
type slowStore struct {
	Store
	meanwhile func()
}

func (s *slowStore) Create(ctx context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error) {
	if do := s.meanwhile; do != nil {
		s.meanwhile = nil
		do()
		return nil, errFault
	}
	return s.Store.Create(ctx, c)
}

// busyStore does something else before it executes the next deletion.
type busyStore struct {
	Store
	meanwhile func()
}

func (s *busyStore) Delete(ctx context.Context, c *cluster.IPClaim) error {
	if do := s.meanwhile; do != nil {
		s.meanwhile = nil
		do()
	}
	return s.Store.Delete(ctx, c)
}

// A second sandbox of a pod, while the first one still has its device, gets an address of its own.
func TestTwoSandboxes(t *testing.T) {
	w := calm(t, 1)
	first := w.nodes[0].mustAllocate("c1", w.webPod("u1"))
	if second := w.nodes[0].mustAllocate("c2", w.webPod("u1")); slices.Equal(first, second) {
		t.Errorf("two sandboxes have %v", first)
	}
	if _, err := w.nodes[0].agent.Allocate(t.Context(), Attachment{"c2", "eth0"}, w.webPod("u1")); !errors.Is(err, ErrHeld) {
		t.Errorf("a second ADD of one container: %v", err)
	}
}

// A claim that somebody has deleted is made again while its pod runs. One that another pod has got meanwhile is lost.
func TestHeal(t *testing.T) {
	w := calm(t, 2)
	n := w.nodes[0]
	got := n.mustAllocate("c1", w.webPod("u1"))
	for _, c := range w.store.All() {
		if err := w.store.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	w.passAll()
	if len(w.store.All()) != 2 || len(n.agent.Lost()) != 0 {
		t.Fatalf("%d claims, lost %v", len(w.store.All()), n.agent.Lost())
	}
	c, _ := w.store.Get(t.Context(), got[0])
	taken := *c
	taken.Node, taken.Pod, taken.ContainerID, taken.PodUID = "node-1", "other", "c9", "u9"
	if _, err := w.store.Update(t.Context(), &taken); err != nil {
		t.Fatal(err)
	}
	n.watch.Deliver(n.agent, -1)
	if err := n.agent.Pass(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	kept, _ := w.store.Get(t.Context(), got[1])
	other := *kept
	other.Pod, other.ContainerID, other.StatefulSet = "web-1", "", "web"
	if _, err := w.store.Update(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	n.watch.Deliver(n.agent, -1)
	if err := n.agent.Pass(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if lost := n.agent.Lost(); len(lost) != 2 || !strings.Contains(lost[1].Reason, "shop/web-1") {
		t.Fatalf("what is kept for another pod is not lost: %+v", lost)
	}
	if kept, _ = w.store.Get(t.Context(), got[1]); w.store.Delete(t.Context(), kept) != nil {
		t.Fatal("the kept claim is not deleted")
	}
	for range 2 { // the second pass sees that the first one has made the claim again
		n.watch.Deliver(n.agent, -1)
		if err := n.agent.Pass(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if lost := n.agent.Lost(); len(lost) != 1 || lost[0].Address != got[0] || !strings.Contains(lost[0].Reason, "shop/other on node node-1") {
		t.Fatalf("lost: %+v", lost)
	}
	n.mustRelease("c1")
	if c, _ := w.store.Get(t.Context(), got[0]); c == nil || c.Pod != "other" {
		t.Errorf("the DEL of the pod that has lost %s leaves %+v", got[0], c)
	}
}

// An index that is behind the store does not make an agent believe that it has lost an address.
func TestStaleIndex(t *testing.T) {
	w := calm(t, 1)
	n := w.nodes[0]
	got := n.mustAllocate("c1", w.webPod("u1"))
	n.agent.Remove(got[0])
	if err := n.agent.Pass(t.Context(), true); err != nil || len(n.agent.Lost()) != 0 {
		t.Errorf("lost %v, %v", n.agent.Lost(), err)
	}
}

// An answer that is lost does not cost the pod its address.
func TestLostAnswer(t *testing.T) {
	w := calm(t, 1)
	lossy := &lossyStore{Store: w.store}
	a := New(Options{Node: "n", Store: lossy, Facts: w, Log: w.nodes[0].agent.Log}, nil)
	a.Replace(nil)
	a.SetPools(w.pools)
	lossy.lose = true
	got, err := a.Allocate(t.Context(), Attachment{"c1", "eth0"}, w.webPod("u1"))
	if err != nil || len(w.store.All()) != len(got.Addresses) {
		t.Errorf("%+v, %v, %d claims", got, err, len(w.store.All()))
	}
}

// lossyStore executes the next creation and answers with an error.
type lossyStore struct {
	Store
	lose bool
}

func (s *lossyStore) Create(ctx context.Context, c *cluster.IPClaim) (*cluster.IPClaim, error) {
	made, err := s.Store.Create(ctx, c)
	if s.lose {
		s.lose = false
		return nil, errFault
	}
	return made, err
}

// prober finds a machine that has the first address that is probed.
type prober struct{ first netip.Addr }

func (p *prober) Probe(_ context.Context, _ *ippool.Pool, a netip.Addr) (string, error) {
	if p.first.IsValid() {
		return "", nil
	}
	p.first = a
	return "02:00:00:00:00:01 has replied", nil
}

// An address that another machine has is marked, skipped for a time, and counted.
func TestConflict(t *testing.T) {
	w := calm(t, 1)
	n := w.nodes[0]
	w.pools = poolsOf(pool("a", 1, "192.0.2.1-192.0.2.2"))
	n.agent.SetPools(w.pools)
	probe := &prober{}
	n.agent.Prober = probe
	if got := n.mustAllocate("c1", w.webPod("u1")); len(got) != 1 || got[0] == probe.first {
		t.Errorf("got %v", got)
	}
	p := w.pools.Pools[0]
	if use := n.agent.Use(p, ippool.IPv4); use.Taken != 2 || use.Conflicts != 1 || use.Allocated != 1 {
		t.Errorf("use: %+v", use)
	}
	other := Request{Namespace: "shop", Pod: "other", Pools: w.pools.Pools}
	var exhausted *ippool.ExhaustedError
	if _, err := n.agent.Allocate(t.Context(), Attachment{"c2", "eth0"}, other); !errors.As(err, &exhausted) {
		t.Errorf("with a conflict and a pod on two addresses: %v", err)
	}
	n.agent.Prober = nil
	w.now = w.now.Add(conflictTime)
	w.passAll()
	if got := n.mustAllocate("c2", other); got[0] != probe.first {
		t.Errorf("after the conflict: %v", got)
	}
}

// everywhere answers for all addresses.
type everywhere struct{}

func (everywhere) Probe(_ context.Context, _ *ippool.Pool, a netip.Addr) (string, error) {
	return a.String() + " is in use by the host with MAC 02:00:00:00:00:01", nil
}

// A machine that answers for all addresses keeps pods from starting while it does so, and does not exhaust the pool.
func TestConflictsAreBounded(t *testing.T) {
	w := calm(t, 1)
	n := w.nodes[0]
	w.pools = poolsOf(pool("a", 1, "192.0.2.1-192.0.2.40"))
	n.agent.SetPools(w.pools)
	n.agent.Prober = everywhere{}
	for i := range 30 {
		att := Attachment{fmt.Sprint("c", i), "eth0"}
		var conflicts *ConflictError
		if got, err := n.agent.Allocate(t.Context(), att, Request{Namespace: "shop", Pod: att.ContainerID, Pools: w.pools.Pools}); !errors.As(err, &conflicts) {
			t.Fatalf("%v, %v", got, err)
		} else if !strings.Contains(err.Error(), "02:00:00:00:00:01") || !strings.Contains(err.Error(), "spec.probe") {
			t.Errorf("the error names neither the machine nor the switch: %v", err)
		}
		if err := n.agent.Pass(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if use := n.agent.Use(w.pools.Pools[0], ippool.IPv4); use.Conflicts != 5 || use.Taken != 5 {
		t.Errorf("use: %+v, want an eighth of 40 addresses", use)
	}
	n.agent.Prober = &prober{first: netip.IPv4Unspecified()}
	n.mustAllocate("last", Request{Namespace: "shop", Pod: "last", Pools: w.pools.Pools})
}

// A pool that is exhausted in one family gives nothing, and the next pool is tried.
func TestNextPool(t *testing.T) {
	w := calm(t, 1)
	n := w.nodes[0]
	w.pools = poolsOf(pool("small", 1, "192.0.2.1-192.0.2.5", "2001:db8::1-2001:db8::1"), pool("large", 2, "198.51.100.1-198.51.100.9"))
	n.agent.SetPools(w.pools)
	n.mustAllocate("c1", Request{Namespace: "shop", Pod: "a", Pools: w.pools.Pools})
	if got := n.mustAllocate("c2", Request{Namespace: "shop", Pod: "b", Pools: w.pools.Pools}); len(got) != 1 || !w.pools.Pool("large").Contains(got[0]) {
		t.Errorf("from the next pool: %v", got)
	}
	if len(w.store.All()) != 3 {
		t.Errorf("%d claims, want 3", len(w.store.All()))
	}
}

// A namespace leaves as many addresses to the others as it has.
func TestNamespaceLeavesAddresses(t *testing.T) {
	w := calm(t, 1)
	n := w.nodes[0]
	w.pools = ippool.NewSet([]*cluster.IPPool{pool("a", 1, "192.0.2.1-192.0.2.10")}, nil, []*cluster.Namespace{{Name: "greedy"}, {Name: "modest"}})
	n.agent.SetPools(w.pools)
	got := 0
	var err error
	for i := range 10 {
		att := Attachment{fmt.Sprint("c", i), "eth0"}
		if _, err = n.agent.Allocate(t.Context(), att, Request{Namespace: "greedy", Pod: fmt.Sprint("p", i), Pools: w.pools.Pools}); err == nil {
			got++
			if err := n.agent.Commit(att); err != nil {
				panic(err)
			}
		}
	}
	if got != 5 || err == nil || !strings.Contains(err.Error(), "namespace greedy has 5") {
		t.Errorf("one namespace has %d of 10: %v", got, err)
	}
	n.mustAllocate("m1", Request{Namespace: "modest", Pod: "m1", Pools: w.pools.Pools})
}

// agentsOf makes agents that run at the same time, with the delays of a real watch.
func agentsOf(t testing.TB, store *memory.Store, set *ippool.Set, count int) []*Allocator {
	var all []*Allocator
	facts := &simulation{pods: map[cluster.Key]*cluster.Pod{}}
	for i := range count {
		a := New(Options{Node: fmt.Sprint("node-", i), Store: store, Facts: facts, Log: calmLog, MayBeGone: func(string) bool { return false }}, nil)
		a.SetPools(set)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		<-a.synced
		all = append(all, a)
	}
	return all
}

// Many agents allocate from one pool at once: each address is given once, and all come back.
func TestAgentsAtOnce(t *testing.T) {
	store := memory.New()
	set := poolsOf(pool("a", 1, "10.0.0.1-10.0.2.0", "2001:db8::1-2001:db8::200")) // for all, should no release be in time
	agents := agentsOf(t, store, set, 8)
	var workers sync.WaitGroup
	var mu sync.Mutex
	has := map[netip.Addr]string{}
	for i := range 40 {
		workers.Go(func() {
			a := agents[i%len(agents)]
			for round := range 10 {
				att := Attachment{fmt.Sprintf("c-%d-%d", i, round), "eth0"}
				got, err := a.Allocate(t.Context(), att, Request{Namespace: "shop", Pod: att.ContainerID, PodUID: att.ContainerID, Pools: set.Pools})
				if err != nil {
					t.Errorf("%s: %v", att.ContainerID, err)
					return
				}
				if err := a.Commit(att); err != nil {
					panic(err)
				}
				mu.Lock()
				for _, addr := range got.Addresses {
					if other := has[addr]; other != "" {
						t.Errorf("%s is given to %s and %s", addr, other, att.ContainerID)
					}
					has[addr] = att.ContainerID
				}
				mu.Unlock()
				mu.Lock()
				for _, addr := range got.Addresses {
					delete(has, addr)
				}
				mu.Unlock()
				a.Release(att)
			}
		})
	}
	workers.Wait()
	for deadline := time.Now().Add(20 * time.Second); len(store.All()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d claims are left", len(store.All()))
		}
	}
}

// BenchmarkAllocate allocates and releases on eight agents that share a pool, which is half full.
func BenchmarkAllocate(b *testing.B) {
	store := memory.New()
	set := poolsOf(pool("a", 1, "192.0.0.1-192.0.0.254"))
	large := *set.Pools[0].IPPool
	large.Subnets, large.Ranges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}, pool("x", 1, "10.0.0.1-10.0.255.254").Ranges
	set = poolsOf(&large)
	for i := range uint64(30000) {
		addr := set.Pools[0].Spaces[ippool.IPv4].At(2 * i)
		if _, err := store.Create(b.Context(), &cluster.IPClaim{Address: addr, Pool: "a", Node: "other", Namespace: "shop", Pod: addr.String(), ContainerID: "c"}); err != nil {
			b.Fatal(err)
		}
	}
	agents := agentsOf(b, store, set, 8)
	var next atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := next.Add(1)
			a := agents[int(i)%len(agents)]
			att := Attachment{fmt.Sprint("c-", i), "eth0"}
			if _, err := a.Allocate(b.Context(), att, Request{Namespace: "shop", Pod: att.ContainerID, PodUID: att.ContainerID, Pools: set.Pools}); err != nil {
				b.Error(err)
			}
			if err := a.Commit(att); err != nil {
				panic(err)
			}
			a.Release(att)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
}

// A pod keeps its route on other nodes when a Node lists its address later. A claim outside of all pools makes no route.
func TestRemote(t *testing.T) {
	w := calm(t, 2)
	got := w.nodes[0].mustAllocate("c1", Request{Namespace: "shop", Pod: "a", PodUID: "1", Pools: w.pools.Pools})
	w.deliver()
	other := w.nodes[1].agent
	pools := []*cluster.IPPool{w.pools.Pools[0].IPPool}
	for _, c := range []struct {
		name  string
		pools []*cluster.IPPool
		nodes []cluster.Node
		has   bool
	}{
		{"the pool has it", pools, nil, true},
		{"a Node lists it", pools, []cluster.Node{{Name: "thief", Addresses: got}}, true},
		{"it is in a pod range", pools, []cluster.Node{{Name: "n9", PodCIDRs: []netip.Prefix{netip.PrefixFrom(got[0], got[0].BitLen())}}}, false},
		{"the pool is gone", nil, nil, false},
	} {
		other.SetPools(ippool.NewSet(c.pools, c.nodes, nil))
		if has := slices.Contains(other.Remote()[w.nodes[0].name], got[0]); has != c.has {
			t.Errorf("%s: another node's pod has %s: %t, want %t (%v)", c.name, got[0], has, c.has, other.Remote())
		}
	}
	if own := w.nodes[0].agent.Remote(); len(own) > 0 {
		t.Errorf("the node's own pods are those of others: %v", own)
	}
	w.nodes[0].mustAllocate("c2", w.webPod("u1"))
	w.nodes[0].mustRelease("c2")
	w.deliver()
	other.SetPools(w.pools)
	if remote := other.Remote()[w.nodes[0].name]; len(w.store.All()) != 4 || len(remote) != 2 {
		t.Errorf("of 4 claims, 2 of them kept for a StatefulSet, %v are those of a pod", remote)
	}
}

// Each interface of a pod has addresses of its own, and so has a pod whose name a StatefulSet takes later.
func TestFormerClaims(t *testing.T) {
	w := calm(t, 1)
	n := w.nodes[0]
	web := w.webPod("u1")
	first := n.mustAllocate("c1", web)
	second, err := n.agent.Allocate(t.Context(), Attachment{"c1", "net1"}, web)
	if err != nil || second.Addresses[0] == first[0] {
		t.Fatalf("the second interface has %+v, the first one %v: %v", second, first, err)
	}
	had := map[string][]netip.Addr{"eth0": first, "net1": second.Addresses}
	for name := range had {
		n.agent.Release(Attachment{"c1", name})
	}
	w.passAll()
	order := []string{"eth0", "net1"} // the higher address first: the other one is found before it
	if first[0].Less(second.Addresses[0]) {
		slices.Reverse(order)
	}
	for _, name := range order {
		if got, err := n.agent.Allocate(t.Context(), Attachment{"c1-new", name}, w.webPod("u1-new")); err != nil || got.Addresses[0] != had[name][0] {
			t.Errorf("%s of the next pod has %+v, want %v: %v", name, got, had[name], err)
		}
	}
	bare := w.webPod("u2")
	bare.Pod, bare.StatefulSet = "web-1", ""
	n.mustAllocate("c2", bare)
	of := bare
	of.PodUID, of.StatefulSet = "u3", "web"
	if _, err := n.agent.Allocate(t.Context(), Attachment{"c3", "eth0"}, of); err != nil {
		t.Errorf("a StatefulSet's pod waits for that of another owner: %v", err)
	}
}
