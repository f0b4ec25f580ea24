package ipclaim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go4.org/netipx"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/ipclaim/memory"
	"github.com/beeline-cni/beeline/internal/ippool"
)

// facts are what the API server says. Requests for absent keys fail if broken is set.
type facts struct {
	pods     map[cluster.Key]*cluster.Pod
	gone     map[string]bool
	ordinals map[cluster.Key][2]int
	broken   error
	asked    int
}

func (f *facts) Pod(_ context.Context, key cluster.Key) (*cluster.Pod, error) {
	return f.pods[key], f.broken
}

func (f *facts) NodeGone(_ context.Context, name string) (bool, error) {
	f.asked++
	return f.gone[name], f.broken
}

func (f *facts) Ordinals(_ context.Context, key cluster.Key) (first, count int, err error) {
	return f.ordinals[key][0], f.ordinals[key][1], f.broken
}

// collector is an agent on node a that knows these claims.
func collector(t *testing.T, f *facts, claims ...*cluster.IPClaim) (*Allocator, *memory.Store) {
	t.Helper()
	store := memory.New()
	subnet := netip.MustParsePrefix("192.0.2.0/24")
	a := New(Options{
		Node: "a", Store: store, Facts: f, Log: calmLog, Now: func() time.Time { return time.Unix(1e9, 0) },
		Elected: func(cluster.Key) bool { return true }, MayBeGone: func(string) bool { return true }, PoolsKnown: func() bool { return true },
	}, nil)
	a.Replace(nil)
	a.SetPools(ippool.NewSet([]*cluster.IPPool{
		{Name: "office", Subnets: []netip.Prefix{subnet}, Ranges: []netipx.IPRange{netipx.IPRangeFrom(ip(1), ip(99))}},
		{Name: "invalid", Invalid: "for the test"},
	}, nil, nil))
	for _, c := range claims {
		made, err := store.Create(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		a.Set(made)
	}
	return a, store
}

func ip(last int) netip.Addr { return netip.MustParseAddr(fmt.Sprint("192.0.2.", last)) }

// left gives the claims in a store by the last byte of their address, with "kept" for those without an attachment.
func left(store *memory.Store) (all []string) {
	for _, c := range store.All() {
		what := fmt.Sprint(c.Address.As4()[3])
		if !c.Bound() {
			what += " kept"
		}
		all = append(all, what)
	}
	slices.Sort(all)
	return all
}

var web = cluster.Key{Namespace: "shop", Name: "web-1"}

// webClaim is the claim of the pod web-1 on a node.
func webClaim(node string, last int, change func(*cluster.IPClaim)) *cluster.IPClaim {
	c := &cluster.IPClaim{Address: ip(last), Pool: "office", Node: node, Namespace: web.Namespace, Pod: web.Name, PodUID: "u1", ContainerID: "c1", IfName: "eth0"}
	if change != nil {
		change(c)
	}
	return c
}

// podWith makes the pod web-1.
func podWith(uid string, ended bool) map[cluster.Key]*cluster.Pod {
	return map[cluster.Key]*cluster.Pod{web: {Namespace: web.Namespace, Name: web.Name, UID: cluster.NewUID(uid), Ended: ended}}
}

// A claim of this node without an attachment is released when its pod is gone, and kept for a StatefulSet that has a pod of that name.
func TestCollectOwn(t *testing.T) {
	broken := errors.New("for the test")
	ofSet := func(c *cluster.IPClaim) { c.StatefulSet = "web" }
	set := cluster.Key{Namespace: "shop", Name: "web"}
	for _, test := range []struct {
		name  string
		claim *cluster.IPClaim
		facts facts
		prior func(a *Allocator)
		want  []string
		fails bool
	}{
		{name: "no pod", claim: webClaim("a", 1, nil)},
		{name: "the pod", claim: webClaim("a", 1, nil), facts: facts{pods: podWith("u1", false)}, want: []string{"1"}},
		{name: "the pod has ended", claim: webClaim("a", 1, nil), facts: facts{pods: podWith("u1", true)}},
		{name: "another pod of the name", claim: webClaim("a", 1, nil), facts: facts{pods: podWith("u2", false)}},
		{name: "a claim without a UID", claim: webClaim("a", 1, func(c *cluster.IPClaim) { c.PodUID = "" }), facts: facts{pods: podWith("u2", false)}, want: []string{"1"}},
		{name: "a claim without a pod", claim: webClaim("a", 1, func(c *cluster.IPClaim) { c.Pod = "" }), facts: facts{pods: podWith("u1", false)}},
		{name: "the server is away", claim: webClaim("a", 1, nil), facts: facts{broken: broken}, want: []string{"1"}, fails: true},
		{name: "of another node", claim: webClaim("b", 1, nil), want: []string{"1"}},
		{name: "StatefulSet", claim: webClaim("a", 1, ofSet), facts: facts{ordinals: map[cluster.Key][2]int{set: {0, 2}}}, want: []string{"1 kept"}},
		{name: "StatefulSet with first ordinal", claim: webClaim("a", 1, ofSet), facts: facts{ordinals: map[cluster.Key][2]int{set: {1, 1}}}, want: []string{"1 kept"}},
		{name: "StatefulSet begins later", claim: webClaim("a", 1, ofSet), facts: facts{ordinals: map[cluster.Key][2]int{set: {2, 5}}}},
		{name: "StatefulSet has shrunk", claim: webClaim("a", 1, ofSet), facts: facts{ordinals: map[cluster.Key][2]int{set: {0, 1}}}},
		{name: "StatefulSet is gone", claim: webClaim("a", 1, ofSet)},
		{name: "not a name of the StatefulSet", claim: webClaim("a", 1, func(c *cluster.IPClaim) { c.StatefulSet = "other" }), facts: facts{ordinals: map[cluster.Key][2]int{{Namespace: "shop", Name: "other"}: {0, 9}}}},
		{name: "a live attachment", claim: webClaim("a", 1, nil), prior: func(a *Allocator) {
			a.attachments[Attachment{"c1", "eth0"}] = &attachment{state: live, addresses: []netip.Addr{ip(1)}}
		}, want: []string{"1"}},
		{name: "an endpoint without a file", claim: webClaim("a", 1, nil), prior: func(a *Allocator) { a.unknown = map[netip.Addr]bool{ip(1): true} }, want: []string{"1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, store := collector(t, &test.facts, test.claim)
			if test.prior != nil {
				test.prior(a)
			}
			if err := a.collectOwn(t.Context()); (err != nil) != test.fails {
				t.Error(err)
			}
			if got := left(store); !slices.Equal(got, test.want) {
				t.Errorf("left: %v, want %v", got, test.want)
			}
		})
	}
}

// The pod of a claim exists. Its ADD takes the claim over, unless its interface has another address of the family already.
func TestCollectSecond(t *testing.T) {
	for _, test := range []struct {
		name    string
		has     attachment
		ifName  string
		address netip.Addr
		want    int
	}{
		{"another address", attachment{state: live, pod: web, podUID: "u1"}, "eth0", ip(2), 0},
		{"the same address", attachment{state: live, pod: web, podUID: "u1"}, "eth0", ip(1), 1},
		{"of the other family", attachment{state: live, pod: web, podUID: "u1"}, "eth0", netip.MustParseAddr("2001:db8::1"), 1},
		{"of another interface", attachment{state: live, pod: web, podUID: "u1"}, "net1", ip(2), 1},
		{"of another pod", attachment{state: live, pod: cluster.Key{Namespace: "shop", Name: "db"}, podUID: "u1"}, "eth0", ip(2), 1},
		{"of a former pod", attachment{state: live, pod: web, podUID: "u0"}, "eth0", ip(2), 1},
		{"an ADD in progress", attachment{pod: web, podUID: "u1"}, "eth0", ip(2), 1},
	} {
		a, store := collector(t, &facts{pods: podWith("u1", false)}, webClaim("a", 1, nil))
		test.has.addresses = []netip.Addr{test.address}
		a.attachments[Attachment{"c2", test.ifName}] = &test.has
		if err := a.collectOwn(t.Context()); err != nil || len(store.All()) != test.want {
			t.Errorf("%s: %v are left, want %d, %v", test.name, left(store), test.want, err)
		}
	}
}

// Claims of other nodes are released when the node is gone, and kept ones and conflicts when their reason is.
func TestCollectOthers(t *testing.T) {
	conflict := func(age time.Duration) func(*cluster.IPClaim) {
		return func(c *cluster.IPClaim) { c.ContainerID, c.Conflict = "", time.Unix(1e9, 0).Add(-age) }
	}
	kept := func(c *cluster.IPClaim) { c.ContainerID, c.StatefulSet = "", "web" }
	keptIn := func(pool string, last int) *cluster.IPClaim {
		return webClaim("b", last, func(c *cluster.IPClaim) { kept(c); c.Pool = pool })
	}
	wanted := map[cluster.Key][2]int{{Namespace: "shop", Name: "web"}: {0, 2}}
	gone := map[string]bool{"b": true}
	for _, test := range []struct {
		name   string
		claims []*cluster.IPClaim
		facts  facts
		with   func(o *Options)
		want   []string
		fails  bool
	}{
		{name: "the node is gone", claims: []*cluster.IPClaim{webClaim("b", 1, nil)}, facts: facts{gone: gone}},
		{name: "the node is there", claims: []*cluster.IPClaim{webClaim("b", 1, nil)}, want: []string{"1"}},
		{name: "the node is gone, its pod is not", claims: []*cluster.IPClaim{webClaim("b", 1, nil)}, facts: facts{gone: gone, pods: podWith("u1", false)}, want: []string{"1"}},
		{name: "the server is away", claims: []*cluster.IPClaim{webClaim("b", 1, nil)}, facts: facts{gone: gone, broken: errors.New("for the test")}, want: []string{"1"}, fails: true},
		{name: "the node seems to be there", claims: []*cluster.IPClaim{webClaim("b", 1, nil)}, facts: facts{gone: gone}, with: func(o *Options) { o.MayBeGone = func(string) bool { return false } }, want: []string{"1"}},
		{name: "this node", claims: []*cluster.IPClaim{webClaim("a", 1, nil)}, facts: facts{gone: map[string]bool{"a": true}}, want: []string{"1"}},
		{name: "another node has the duty", claims: []*cluster.IPClaim{webClaim("b", 1, nil)}, facts: facts{gone: gone}, with: func(o *Options) { o.Elected = func(cluster.Key) bool { return false } }, want: []string{"1"}},
		{name: "conflict", claims: []*cluster.IPClaim{webClaim("b", 1, conflict(conflictTime-time.Second))}, want: []string{"1 kept"}},
		{name: "conflict is over", claims: []*cluster.IPClaim{webClaim("b", 1, conflict(conflictTime))}, facts: facts{pods: podWith("u1", false)}},
		{name: "kept", claims: []*cluster.IPClaim{keptIn("office", 1)}, facts: facts{ordinals: wanted}, want: []string{"1 kept"}},
		{name: "kept for no StatefulSet", claims: []*cluster.IPClaim{keptIn("office", 1)}},
		{name: "kept in no pool", claims: []*cluster.IPClaim{keptIn("deleted", 1)}, facts: facts{ordinals: wanted}},
		{name: "kept, pools unknown", claims: []*cluster.IPClaim{keptIn("deleted", 1)}, facts: facts{ordinals: wanted}, with: func(o *Options) { o.PoolsKnown = func() bool { return false } }, want: []string{"1 kept"}},
		{name: "kept in an invalid pool", claims: []*cluster.IPClaim{keptIn("invalid", 1)}, facts: facts{ordinals: wanted}, want: []string{"1 kept"}},
		{name: "kept outside of the pool", claims: []*cluster.IPClaim{keptIn("office", 200)}, facts: facts{ordinals: wanted, pods: podWith("u1", false)}, want: nil},
		{name: "in use outside of the pool", claims: []*cluster.IPClaim{webClaim("b", 200, nil)}, facts: facts{gone: gone, pods: podWith("u1", false)}, want: []string{"200"}},
		{name: "kept, replaced", claims: []*cluster.IPClaim{keptIn("office", 1), webClaim("b", 2, nil)}, facts: facts{ordinals: wanted, pods: podWith("u1", false)}, want: []string{"2"}},
		{name: "kept, replaced on another interface", claims: []*cluster.IPClaim{keptIn("office", 1), webClaim("b", 2, func(c *cluster.IPClaim) { c.IfName = "net1" })}, facts: facts{ordinals: wanted, pods: podWith("u1", false)}, want: []string{"1 kept", "2"}},
		{name: "two are kept", claims: []*cluster.IPClaim{keptIn("office", 1), keptIn("office", 2)}, facts: facts{ordinals: wanted}, want: []string{"1 kept", "2 kept"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, store := collector(t, &test.facts, test.claims...)
			if test.with != nil {
				test.with(&a.Options)
			}
			if err := a.collectOthers(t.Context()); (err != nil) != test.fails {
				t.Error(err)
			}
			if got := left(store); !slices.Equal(got, test.want) {
				t.Errorf("left: %v, want %v", got, test.want)
			}
		})
	}
}

// A claim stays if an ADD has taken it over, or kept it, since the pass has read it; that its state has changed is no error.
func TestDiscardWhatChanged(t *testing.T) {
	for name, test := range map[string]struct {
		claim  *cluster.IPClaim
		before func(a *Allocator, store *memory.Store, c *cluster.IPClaim)
		want   []string
	}{
		"taken over": {webClaim("a", 1, nil), func(a *Allocator, _ *memory.Store, _ *cluster.IPClaim) {
			a.attachments[Attachment{"c1", "eth0"}] = &attachment{}
		}, []string{"1"}},
		"of another node's attachment": {webClaim("b", 1, nil), func(a *Allocator, _ *memory.Store, _ *cluster.IPClaim) {
			a.attachments[Attachment{"c1", "eth0"}] = &attachment{}
		}, nil},
		"changed": {webClaim("a", 1, nil), func(_ *Allocator, store *memory.Store, c *cluster.IPClaim) {
			next := *c
			next.ContainerID = "c2"
			if _, err := store.Update(t.Context(), &next); err != nil {
				t.Error(err)
			}
		}, []string{"1"}},
		"unchanged": {webClaim("a", 1, nil), func(*Allocator, *memory.Store, *cluster.IPClaim) {}, nil},
	} {
		a, store := collector(t, &facts{}, test.claim)
		c := a.claim(ip(1))
		test.before(a, store, c)
		if err := a.discard(t.Context(), c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := left(store); !slices.Equal(got, test.want) {
			t.Errorf("%s: left: %v, want %v", name, got, test.want)
		}
	}
	// What is kept already is not written again.
	a, store := collector(t, &facts{ordinals: map[cluster.Key][2]int{{Namespace: "shop", Name: "web"}: {0, 2}}}, webClaim("b", 1, func(c *cluster.IPClaim) { c.ContainerID, c.StatefulSet = "", "web" }))
	version := store.All()[0].Version
	if err := a.discard(t.Context(), a.claim(ip(1))); err != nil || store.All()[0].Version != version {
		t.Errorf("a kept claim was written again: %+v, %v", store.All()[0], err)
	}
}

// An address of a live attachment is not asked about.
func TestCollectOwnLeavesLiveOnes(t *testing.T) {
	a, store := collector(t, &facts{broken: errors.New("for the test")}, webClaim("a", 1, nil))
	a.attachments[Attachment{"c1", "eth0"}] = &attachment{state: live, addresses: []netip.Addr{ip(1)}}
	if err := a.collectOwn(t.Context()); err != nil || len(store.All()) != 1 {
		t.Errorf("%v are left, %v", left(store), err)
	}
}

// One pass asks once about each node, and about at most so many claims; the next ones go on behind them.
func TestCollectShare(t *testing.T) {
	f := &facts{}
	var claims []*cluster.IPClaim
	for i := range checksMax + 50 {
		claims = append(claims, webClaim("b", 0, func(c *cluster.IPClaim) {
			c.Address = netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		}))
	}
	a, _ := collector(t, f, claims...)
	if err := a.collectOthers(t.Context()); err != nil || f.asked != 1 {
		t.Errorf("%d questions about one node, %v", f.asked, err)
	}
	seen := map[netip.Addr]int{}
	a.collected = cluster.Key{}
	for range 5 {
		share := a.share(claims)
		if len(share) != checksMax {
			t.Fatalf("%d claims in a pass", len(share))
		}
		for _, c := range share {
			seen[c.Address]++
		}
	}
	for _, c := range claims {
		if seen[c.Address] < 3 {
			t.Errorf("%s in %d of 5 passes", c.Address, seen[c.Address])
		}
	}
	if share := a.share(claims[:checksMax]); len(share) != checksMax || share[0] != claims[0] {
		t.Errorf("of %d claims a pass has %d", checksMax, len(share))
	}
}

func TestOrdinalOf(t *testing.T) {
	for name, want := range map[string]int{"web-0": 0, "web-12": 12, "web": -1, "web-": -1, "web-x": -1, "web--1": -1, "db-1": -1} {
		got, ok := ordinalOf(&cluster.IPClaim{StatefulSet: "web", Pod: name})
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d, %t", name, got, ok)
		}
	}
}
