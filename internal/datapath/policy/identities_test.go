package policy

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/policy"
)

// changed returns these pods as Peers, derived from those before.
func changed(before *policy.Peers, pods map[netip.Addr]policy.Identity) *policy.Peers {
	changes := maps.Clone(pods)
	for a := range before.All() {
		if _, stays := pods[a]; !stays {
			changes[a] = policy.IdentityUnknown
		}
	}
	return before.With(changes)
}

// However addresses move between pods, this node and single-address ipBlocks, the map has the entries of the tables,
// also after a restart. Sync does not change the tables.
func TestPeersComeAndGo(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 1))
		d := openTable(t, config.Datapath{})
		var before *policy.Peers
		var copied map[netip.Addr]policy.Identity
		for step := range 40 {
			pods, own, singles := map[netip.Addr]policy.Identity{}, map[netip.Addr]policy.Identity{}, map[netip.Addr]policy.Identity{}
			for n := range byte(60) {
				a := netip.AddrFrom4([4]byte{10, 1, n % 2, n})
				into := []map[netip.Addr]policy.Identity{pods, pods, pods, own, singles, {}}[random.IntN(6)]
				into[a] = policy.IdentityPod | policy.Identity(1+n/20)
				if step%3 == 0 && n%8 != 0 && before != nil { // most of it is unchanged
					if identity, was := before.Get(a); was {
						delete(into, a)
						pods[a] = identity
					}
				}
			}
			want := someTables()
			want.Identities, want.Peers = own, changed(before, pods)
			for a, identity := range singles {
				want.Blocks[netip.PrefixFrom(a, 32)] = identity
			}
			if step%10 == 9 {
				want.Peers = nil
			}
			if step%7 == 6 {
				d = restart(t, d, config.Datapath{})
			}
			if _, err := d.Policies.Sync(want); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			holdsTables(t, d.Policies, want)
			if before != nil && !maps.Equal(copied, maps.Collect(before.All())) {
				t.Fatalf("seed %d, step %d: applied tables have changed", seed, step)
			}
			before, copied = want.Peers, maps.Collect(want.Peers.All())
			if changed, err := d.Policies.Sync(want); err != nil || changed != 0 {
				t.Fatalf("seed %d, step %d: %d entries are written again: %v", seed, step, changed, err)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
	}
}

// When the map is full, the remembered content is that of the map, so that a later Sync writes what is missing.
func TestPeersThatHaveNoRoom(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	d := openTable(t, config.Datapath{Sizes: config.Sizes{Identities: 30}})
	var peers *policy.Peers
	full := 0
	for step := range 60 {
		pods := map[netip.Addr]policy.Identity{}
		for n := range byte(60) {
			if random.IntN(60) < []int{20, 40, 60}[step%3] {
				pods[netip.AddrFrom4([4]byte{10, 1, 0, n})] = policy.IdentityPod | policy.Identity(1+random.IntN(2))
			}
		}
		peers = changed(peers, pods)
		want := &policy.Tables{Peers: peers}
		if _, err := d.Policies.Sync(want); err != nil {
			full++
		} else {
			holdsTables(t, d.Policies, want)
		}
		got, err := d.Policies.All()
		if err != nil {
			t.Fatal(err)
		}
		if has := maps.Collect(d.Policies.identities.has.All()); !maps.Equal(has, got.Identities) {
			t.Fatalf("step %d: %d pods are remembered, the map holds %d, or others", step, len(has), len(got.Identities))
		}
		for a, identity := range got.Identities {
			if pods[a] != identity {
				t.Fatalf("step %d: %s has identity %d, want %d", step, a, identity, pods[a])
			}
		}
	}
	if full == 0 || full == 60 {
		t.Errorf("the map was full %d times of 60", full)
	}
}

// An earlier agent has written the addresses that blocks except, with the unknown identity. They are deleted, and a pod
// that gets such an address keeps its entry.
func TestUnknownIdentitiesAreDeleted(t *testing.T) {
	d := openTable(t, config.Datapath{})
	a, b := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
	for _, address := range []netip.Addr{a, b} {
		if err := d.Objects.Maps.Identities.Put(bpf.AddressOf(address), uint32(policy.IdentityUnknown)); err != nil {
			t.Fatal(err)
		}
	}
	if !d.Policies.HasAny([]netip.Addr{b}) {
		t.Error("an entry with the unknown identity is not known")
	}
	var none *policy.Peers
	want := &policy.Tables{Peers: none.With(map[netip.Addr]policy.Identity{a: policy.IdentityPod | 1})}
	syncs(t, d.Policies, want, 2)
	holdsTables(t, d.Policies, want)
	if d.Policies.HasAny([]netip.Addr{b}) {
		t.Error("a deleted entry is known")
	}
	syncs(t, d.Policies, &policy.Tables{}, 1)
	holdsTables(t, d.Policies, &policy.Tables{})
}

// A pod that gets such an address needs no free entry, so it keeps its identity in a full map.
func TestUnknownIdentityInFullMap(t *testing.T) {
	d := openTable(t, config.Datapath{Sizes: config.Sizes{Identities: 30}})
	last, other := netip.MustParseAddr("10.1.0.250"), netip.MustParseAddr("10.1.0.251")
	for _, a := range []netip.Addr{last, other} {
		if err := d.Objects.Maps.Identities.Put(bpf.AddressOf(a), uint32(policy.IdentityUnknown)); err != nil {
			t.Fatal(err)
		}
	}
	pods := map[netip.Addr]policy.Identity{last: policy.IdentityPod | 1}
	for n := range byte(40) {
		pods[netip.AddrFrom4([4]byte{10, 1, 0, n})] = policy.IdentityPod | 1
	}
	var none *policy.Peers
	for range 2 {
		if _, err := d.Policies.Sync(&policy.Tables{Peers: none.With(pods)}); err == nil {
			t.Error("41 pods fit into 30 entries")
		}
		got, err := d.Policies.All()
		if err != nil {
			t.Fatal(err)
		}
		if identity := got.Identities[last]; identity != pods[last] {
			t.Errorf("%s has identity %d", last, identity)
		}
		if _, left := got.Identities[other]; left || !d.Policies.HasAny([]netip.Addr{last}) {
			t.Errorf("%s is left: %t; %s is forgotten", other, left, last)
		}
	}
}
