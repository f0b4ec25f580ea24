package policy

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/policy"
)

// While IPv6 blocks that contain the IPv4-mapped addresses are written or deleted, no IPv4 address is in them at any
// moment, nor is an address in a block that excepts it.
func TestPoliciesBlockOrder(t *testing.T) {
	strangers := []netip.Addr{fixtures.Addr("203.0.113.9"), fixtures.Addr("10.9.0.1"), fixtures.Addr("2001:db8:1::1")}
	p := New(&bpf.Maps{}, nil)
	for _, outer := range []string{"::/0", "::/1", "::/64", "::/80", "::/95"} {
		blocks := guarded(map[netip.Prefix]policy.Identity{
			fixtures.Prefix(outer): office, fixtures.Prefix("10.0.0.0/8"): office, fixtures.Prefix("10.9.0.0/16"): policy.IdentityUnknown,
			fixtures.Prefix("2001:db8::/32"): office, fixtures.Prefix("2001:db8:1::/48"): policy.IdentityUnknown, fixtures.Prefix("2001:db8:1:2::/96"): office,
		})
		inOrder := slices.SortedFunc(maps.Keys(blocks), p.blocks.order)
		for range 20 {
			again := slices.Collect(maps.Keys(blocks))
			rand.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
			if slices.SortFunc(again, p.blocks.order); !slices.Equal(again, inOrder) {
				t.Errorf("%s: the order is %v, and another time %v", outer, inOrder, again)
				break
			}
		}
		for n := range inOrder { // deleting goes from the last one to the first
			for _, stranger := range strangers {
				if block, in := blockOf(inOrder[:n+1], stranger); in && blocks[block] != policy.IdentityUnknown {
					t.Errorf("%s is in block %s while the map has %v", stranger, block, inOrder[:n+1])
				}
			}
		}
	}
}

// blockOf is the block that the map has for an address.
func blockOf(blocks []netip.Prefix, a netip.Addr) (found netip.Prefix, in bool) {
	address := netip.AddrFrom16(a.As16())
	for _, b := range blocks {
		key := blockKeyOf(b)
		holds := netip.PrefixFrom(netip.AddrFrom16(b.Addr().As16()), int(key.PrefixLen)).Contains(address)
		if holds && (!in || key.PrefixLen > blockKeyOf(found).PrefixLen) {
			found, in = b, true
		}
	}
	return found, in
}

// Changes of pods that isolate or deny come first, then changes of rules, then changes that allow more.
func TestPoliciesPodSteps(t *testing.T) {
	type sets = policy.Sets
	for _, c := range []struct{ now, then, first, second sets }{
		{sets{}, sets{Ingress: setWeb}, sets{Ingress: setWeb}, sets{Ingress: setWeb}},
		{sets{Ingress: setWeb}, sets{Egress: setDB}, sets{Ingress: setWeb, Egress: setDB}, sets{Ingress: setWeb, Egress: setDB}},
		{sets{Ingress: setWeb, Egress: setDB}, sets{Ingress: setDB}, sets{Ingress: setWeb, Egress: setDB}, sets{Ingress: setDB, Egress: setDB}},
		{sets{Ingress: setWeb, Egress: setDB}, denyAll, denyAll, denyAll},
		{denyAll, sets{Ingress: setWeb}, denyAll, denyAll},
		{sets{Ingress: policy.DenyAll, Egress: setDB}, sets{Ingress: setWeb, Egress: setWeb}, sets{Ingress: policy.DenyAll, Egress: setDB}, sets{Ingress: policy.DenyAll, Egress: setWeb}},
	} {
		now, then := map[netip.Addr]sets{fixtures.PodB.V4: c.now, fixtures.PodA.V4: c.now}, map[netip.Addr]sets{fixtures.PodB.V4: c.then}
		if c.now == (sets{}) {
			clear(now)
		}
		first, second := maps.Clone(now), maps.Clone(now) // with PodA, which is deleted last
		first[fixtures.PodB.V4], second[fixtures.PodB.V4] = c.first, c.second
		want := []map[netip.Addr]sets{first, second, then}
		if got := podSteps(now, then); !slices.EqualFunc(got, want, maps.Equal) {
			t.Errorf("from %+v to %+v: %+v, want %+v", c.now, c.then, got, want)
		}
	}
}

// While isolation moves from one pod to the other and back, one of them is always isolated.
func TestPoliciesOneIsIsolated(t *testing.T) {
	d := openTable(t, config.Datapath{})
	a, b := fixtures.Addr("10.1.1.2"), fixtures.Addr("10.1.1.3")
	only := func(isolated netip.Addr) *policy.Tables {
		all := map[netip.Addr]policy.Sets{a: {Egress: setDB}, b: {Egress: setDB}} // the map keeps both
		all[isolated] = policy.Sets{Ingress: setWeb, Egress: setDB}
		return &policy.Tables{Pods: all}
	}
	if _, err := d.Policies.Sync(only(b)); err != nil {
		t.Fatal(err)
	}
	var syncs atomic.Int64 // the odd ones isolate a
	var stop atomic.Bool
	var writer sync.WaitGroup
	writer.Go(func() {
		defer stop.Store(true)
		for n := range int64(5000) {
			syncs.Store(n + 1)
			if _, err := d.Policies.Sync(only([]netip.Addr{a, b}[n%2])); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	open := func(pod netip.Addr) bool {
		var sets bpf.PolicyPod
		return d.Objects.Maps.PolicyPods.Lookup(bpf.AddressOf(pod), &sets) == nil && sets.Ingress == uint32(policy.NotIsolated)
	}
	for !stop.Load() {
		n := syncs.Load()
		opened, isolated := b, a
		if n%2 == 0 {
			opened, isolated = a, b
		}
		// Within one Sync the first stays open from here on: if the second still is, both were open at once.
		if open(opened) && open(isolated) && syncs.Load() == n {
			t.Errorf("change %d: neither is isolated", n)
			return
		}
	}
}
