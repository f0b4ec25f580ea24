package datapath

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/policy"
)

// partsOf gives pods as tables have them, with the parts of before that are as they were.
func partsOf(pods map[netip.Addr]policy.Identity, before *policy.Peers) *policy.Peers {
	now := &policy.Peers{}
	for a, identity := range pods {
		at := policy.PartOf(a)
		if now[at] == nil {
			now[at] = map[netip.Addr]policy.Identity{}
		}
		now[at][a] = identity
	}
	for at := range now {
		if before != nil && maps.Equal(now[at], before[at]) {
			now[at] = before[at]
		}
	}
	return now
}

// Wherever addresses go between pods, this node and ipBlocks of one address, the kernel has what the tables have, also for an agent that begins
// with what another has left; and tables that were put into force are not changed.
func TestPeersComeAndGo(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 1))
		d := openPolicies(t, Config{})
		var before *policy.Peers
		var copied map[netip.Addr]policy.Identity
		for step := range 40 {
			pods, own, singles := map[netip.Addr]policy.Identity{}, map[netip.Addr]policy.Identity{}, map[netip.Addr]policy.Identity{}
			for n := range byte(60) {
				a := netip.AddrFrom4([4]byte{10, 1, n % 2, n})
				into := []map[netip.Addr]policy.Identity{pods, pods, pods, own, singles, {}}[random.IntN(6)]
				into[a] = policy.IdentityPod | policy.Identity(1+n/20)
				if step%3 == 0 && n%8 != 0 && before != nil { // most of it stays
					if identity, was := before.Get(a); was {
						delete(into, a)
						pods[a] = identity
					}
				}
			}
			want := someTables()
			want.Identities, want.Singles, want.Peers = own, singles, partsOf(pods, before)
			if step%10 == 9 {
				want.Peers = nil
			}
			if step%7 == 6 {
				d = restartPolicies(t, d, Config{})
			}
			if _, err := d.Policies.Sync(want); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			holdsTables(t, d.Policies, want)
			if before != nil && !maps.Equal(copied, maps.Collect(before.All())) {
				t.Fatalf("seed %d, step %d: tables that were put into force have changed", seed, step)
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
