package macvlan_test

import (
	"maps"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/macvlan"
)

// Each change of the table makes cached decisions invalid: they have the MAC and the network namespace of a pod.
func TestTable(t *testing.T) {
	o := testmaps.Open(t, config.Datapath{EBPFRouting: true, Macvlan: true})
	table := macvlan.New(&o.Maps, o.Generation)
	key := macvlan.Key{Parent: 7, MAC: fwd.MAC{2, 0, 0, 0, 0, 1}}
	pod := macvlan.Pod{Netns: 4711, IPv4: fixtures.Addr("10.0.0.1"), IPv6: fixtures.Addr("fd00::1"), Interface: 9, HostMAC: fwd.MAC{2, 0, 0, 0, 0, 2}}
	want := map[macvlan.Key]macvlan.Pod{}
	expect := func(what string, advances bool, change func() error) {
		t.Helper()
		before, _ := testmaps.Advances(t, o)
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if after, _ := testmaps.Advances(t, o); (after != before) != advances {
			t.Errorf("%s: decisions are made anew: %t", what, after != before)
		}
		if have, err := table.All(); err != nil || !maps.Equal(have, want) {
			t.Errorf("%s: the table has %v, expected %v: %v", what, have, want, err)
		}
	}
	want[key] = pod
	expect("add", true, func() error { return table.Set(key, pod) })
	pod.Netns++
	want[key] = pod
	sync := func() error { _, err := table.Sync(want); return err }
	expect("another network namespace", true, sync)
	expect("nothing", false, sync)
	delete(want, key)
	expect("remove", true, func() error { return table.Delete(key) })
	want[key] = pod
	expect("restore", true, sync)
	clear(want)
	expect("remove all", true, sync)
}
