package fwd_test

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
)

func TestUplinksRoundTrip(t *testing.T) {
	o := testmaps.Open(t, config.Datapath{Services: true})
	u := fwd.NewUplinks(&o.Maps, o.Generation)
	want := map[int]fwd.Uplink{
		2: {IPv4: netip.MustParseAddr("192.0.2.1"), IPv6: netip.MustParseAddr("2001:db8::1"), MAC: fwd.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500},
		3: {IPv4: netip.MustParseAddr("198.51.100.1"), MAC: fwd.MAC{2, 0, 0, 0, 0, 2}, MTU: 9000},
	}
	sync := func(changes int) {
		t.Helper()
		before, _ := testmaps.Advances(t, o)
		if changed, err := u.Sync(want); err != nil || changed != changes {
			t.Errorf("%d uplinks changed, expected %d: %v", changed, changes, err)
		}
		if got, err := u.All(); err != nil || !maps.Equal(got, want) {
			t.Errorf("uplinks %v, expected %v: %v", got, want, err)
		}
		if now, _ := testmaps.Advances(t, o); (now != before) != (changes > 0) {
			t.Errorf("decisions are made anew: %t, after %d changes", now != before, changes)
		}
	}
	sync(2)
	sync(0)
	changed := want[2]
	changed.IPv6 = netip.Addr{}
	want[2] = changed
	delete(want, 3)
	sync(2)
}
