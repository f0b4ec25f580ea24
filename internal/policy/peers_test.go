package policy

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// Peers behave as a map, whatever changes, and earlier Peers do not change.
func TestPeersAreAsAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var peers *Peers
	want := map[netip.Addr]Identity{}
	for range 300 {
		changes := map[netip.Addr]Identity{}
		for range random.IntN(40) {
			addr := number(10<<24 | uint32(random.IntN(5000)))
			if random.IntN(4) == 0 {
				addr = netip.AddrFrom16([16]byte{0xfd, 15: byte(random.IntN(30))})
			}
			changes[addr] = []Identity{IdentityUnknown, IdentityPod, IdentityPod | 1, IdentityPod | 2}[random.IntN(4)]
		}
		before, copied := peers, maps.Clone(want)
		peers = peers.With(changes)
		differ := map[netip.Addr]PeerDifference{}
		for addr, identity := range changes {
			if was := want[addr]; was != identity {
				differ[addr] = PeerDifference{addr, was, identity}
			}
			if want[addr] = identity; identity == IdentityUnknown {
				delete(want, addr)
			}
		}
		if got := maps.Collect(peers.All()); !maps.Equal(got, want) || peers.Len() != len(want) {
			t.Fatalf("%d addresses, Len is %d, want %d", len(got), peers.Len(), len(want))
		}
		if got := maps.Collect(before.All()); !maps.Equal(got, copied) {
			t.Fatal("earlier Peers have changed")
		}
		for d := range peers.Since(before) {
			if differ[d.Address] != d {
				t.Fatalf("difference %v, want %v", d, differ[d.Address])
			}
			delete(differ, d.Address)
		}
		if len(differ) > 0 {
			t.Fatalf("differences are missing: %v", differ)
		}
		for addr, identity := range want {
			if got, known := peers.Get(addr); !known || got != identity {
				t.Fatalf("%s has %d, %t", addr, got, known)
			}
		}
		if _, known := peers.Get(netip.MustParseAddr("10.1.0.0")); known {
			t.Fatal("an unknown address has an identity")
		}
	}
	again := peers.With(maps.Collect(peers.All()))
	if again != peers {
		t.Error("nothing changed, but the Peers did")
	}
	if got := peers.With(func() map[netip.Addr]Identity {
		policyRemoved := map[netip.Addr]Identity{}
		for addr := range peers.All() {
			policyRemoved[addr] = IdentityUnknown
		}
		return policyRemoved
	}()); got.Len() != 0 || len(maps.Collect(got.All())) != 0 {
		t.Errorf("%d addresses remain", got.Len())
	}
}
