package policy

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

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
			want.Identities, want.Singles, want.Peers = own, singles, changed(before, pods)
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
		if has := maps.Collect(d.Policies.peers.has.All()); !maps.Equal(has, got.Identities) {
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

// An address that a block excepts has the unknown identity in the map. A pod that gets the address reuses the entry,
// and deleting the pod removes it.
func TestNoAddressBecomesAPod(t *testing.T) {
	d := openTable(t, config.Datapath{Sizes: config.Sizes{Identities: 2}})
	a, b, c := netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.3")
	pod := policy.IdentityPod | 1
	sync := func(want *policy.Tables, full bool) {
		t.Helper()
		if _, err := d.Policies.Sync(want); (err != nil) != full {
			t.Fatalf("the map is full: %t, %v", full, err)
		}
	}
	for range 2 {
		sync(&policy.Tables{Singles: map[netip.Addr]policy.Identity{a: policy.IdentityUnknown}}, false)
		var none *policy.Peers
		sync(&policy.Tables{Peers: none.With(map[netip.Addr]policy.Identity{a: pod, b: pod, c: pod})}, true)
		got, err := d.Policies.All()
		if err != nil {
			t.Fatal(err)
		}
		if got.Identities[a] != pod {
			t.Errorf("%s has identity %d, want %d", a, got.Identities[a], pod)
		}
		sync(&policy.Tables{}, false)
		holdsTables(t, d.Policies, &policy.Tables{})
	}
	// Also an address that was never written, to this node or to the unknown identity.
	sync(&policy.Tables{Singles: map[netip.Addr]policy.Identity{a: policy.IdentityUnknown, b: policy.IdentityUnknown}}, false)
	sync(&policy.Tables{Peers: (*policy.Peers)(nil).With(map[netip.Addr]policy.Identity{a: pod}), Identities: map[netip.Addr]policy.Identity{b: policy.IdentityNode}}, false)
	sync(&policy.Tables{Identities: map[netip.Addr]policy.Identity{a: policy.IdentityNode}}, false)
	want := &policy.Tables{Singles: map[netip.Addr]policy.Identity{a: policy.IdentityUnknown}}
	sync(want, false)
	holdsTables(t, d.Policies, want)
	// A Sync that has moved it and not written yet.
	d.Policies.divide(&policy.Tables{Peers: (*policy.Peers)(nil).With(map[netip.Addr]policy.Identity{a: pod})})
	if identity, known := d.Policies.known(a); identity != policy.IdentityUnknown || !known || !d.Policies.peers.unknown[a] {
		t.Errorf("%s has identity %d, known %t", a, identity, known)
	}
	want = &policy.Tables{Identities: map[netip.Addr]policy.Identity{a: policy.IdentityNode}}
	sync(want, false)
	holdsTables(t, d.Policies, want)
	sync(&policy.Tables{}, false)
	holdsTables(t, d.Policies, &policy.Tables{})
}
