package load_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/load"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// nextVersion changes the meaning of entries without their size, in maps of each group and in some of no group.
func nextVersion(tb testing.TB, spec *ebpf.CollectionSpec) {
	tb.Helper()
	swap(tb, spec, "endpoint", "pod_mac", "host_mac")
	swap(tb, spec, "route", "next_hop_mac", "uplink_mac")
	swap(tb, spec, "nat_entry", "source", "destination")
	swap(tb, spec, "ct_entry", "ingress", "egress")
	swap(tb, spec, "policy_pod", "ingress", "egress")
	swap(tb, spec, "backend_key", "set", "index")
}

// tablesOf opens the maps as the agent of a version does, without loading programs.
func tablesOf(t *testing.T, cfg config.Datapath, version func(testing.TB, *ebpf.CollectionSpec)) *harness.Opened {
	t.Helper()
	d, err := harness.OpenVersion(t, cfg, version, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func mustCommit(d *harness.Opened, t *testing.T) {
	t.Helper()
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
}

func pinsAt(t *testing.T, root string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(load.MapDir(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// wantFresh compares the maps that a datapath has not adopted.
func wantFresh(t *testing.T, d *harness.Opened, want ...string) {
	t.Helper()
	got := slices.Sorted(slices.Values(d.Objects.Fresh))
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("maps %q are fresh, want %q", got, want)
	}
}

var serviceGroup = []string{
	bpf.MapServices, bpf.MapBackends, bpf.MapMaglev, bpf.MapAffinities, bpf.MapAffinitiesExt, bpf.MapServiceSources, bpf.MapServiceCounts, bpf.MapSockStorage, bpf.MapSockUdp,
}

// A map whose layout has changed is replaced, with the maps that refer to it, and no other.
func TestLayoutOfOneMapChanges(t *testing.T) {
	testenv.Root(t)
	for _, c := range []struct {
		of, one, other string
		fresh          []string
	}{
		{"backend_key", "set", "index", serviceGroup},
		{"affinity", "set", "index", []string{bpf.MapAffinities, bpf.MapAffinitiesExt}},
		{"sock_entry", "service", "backend", []string{bpf.MapSockStorage, bpf.MapSockUdp}},
		{"nat_owner", "established", "pending", []string{bpf.MapNatOwners}},
		{"ct_slot", "pod", "slot", []string{bpf.MapConntrack, bpf.MapCtSlots, bpf.MapCtShares}},
		{"policy_key", "set", "identity", []string{bpf.MapPolicyPods, bpf.MapIdentities, bpf.MapIdentityCidrs, bpf.MapPolicies, bpf.MapPolicyPorts}},
		{"uplink", "ipv4", "ipv6", []string{bpf.MapUplinks}},
	} {
		t.Run(c.of, func(t *testing.T) {
			cfg := config.Datapath{Root: fixtures.Bpffs(t)}
			mustCommit(tablesOf(t, cfg, nil), t)
			d := tablesOf(t, cfg, func(tb testing.TB, spec *ebpf.CollectionSpec) { swap(tb, spec, c.of, c.one, c.other) })
			wantFresh(t, d, c.fresh...)
		})
	}
}

// The programs of the previous version keep all entries that they use.
func TestAdoptedMapsAreWhole(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true}
	d := tablesOf(t, cfg, nil)
	if _, err := d.Services.Sync(fixtures.Crowd(3)); err != nil {
		t.Fatal(err)
	}
	mustCommit(d, t)
	next := tablesOf(t, cfg, func(tb testing.TB, spec *ebpf.CollectionSpec) { swap(tb, spec, "service", "id", "affinity") })
	if _, err := next.Services.Sync([]service.Port{fixtures.Crowd(4)[3]}); err != nil {
		t.Fatal(err)
	}
	if err := next.Services.Sweep(time.Now().Add(time.Minute)); err != nil { // long after the grace period
		t.Error(err)
	}
	if got, err := table.Count(d.Objects.Maps.Backends); err != nil || got != 30 {
		t.Errorf("of the backends that the old programs use, %d are left: %v", got, err)
	}
	if got, err := table.Count(next.Objects.Maps.Backends); err != nil || got != 10 {
		t.Errorf("the new programs have %d backends: %v", got, err)
	}
}

// forget removes maps, as if a version without them had run.
func forget(t *testing.T, d *harness.Opened, added ...string) {
	t.Helper()
	path := filepath.Join(load.MapDir(d.Objects.Config.Root), load.CommittedName)
	names, _, err := load.CommittedPins(d.Objects.Config.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range added {
		names = slices.DeleteFunc(names, func(pin string) bool { return pin == d.Objects.Pins.Name(name) })
		if err := os.Remove(d.Objects.Pins.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(strings.Join(names, ","), path); err != nil {
		t.Fatal(err)
	}
}

// A version with one map more adopts all others. If the pin of a map is lost, the maps that refer to it are replaced.
func TestAddedMapKeepsItsGroup(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t)}
	d := tablesOf(t, cfg, nil)
	mustCommit(d, t)
	for _, name := range load.PinnedMaps {
		forget(t, d, name)
		next := tablesOf(t, cfg, nil)
		wantFresh(t, next, name)
		mustCommit(next, t)
		if err := os.Remove(next.Objects.Pins.Path(name)); err != nil {
			t.Fatal(err)
		}
		next = tablesOf(t, cfg, nil)
		for _, other := range load.Groups[name] {
			if !slices.Contains(next.Objects.Fresh, name) || slices.Contains(load.Groups[other], name) && !slices.Contains(next.Objects.Fresh, other) {
				t.Errorf("without %s: %q are fresh", name, next.Objects.Fresh)
			}
		}
		mustCommit(next, t)
		d = next
	}
}

// Counters that a version adds count existing entries, and entries of other maps are kept.
func TestAddedMapIsFilled(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true, Sizes: config.Sizes{NAT: 64, NATPending: 64}}
	d := tablesOf(t, cfg, nil)
	if _, err := d.Services.Sync(fixtures.Crowd(3)); err != nil {
		t.Fatal(err)
	}
	there, _ := fixtures.ClientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), 40000, 1)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, there)
	if err := d.Objects.Maps.NatSlots.Put(uint32(5), &bpf.NatSlot{Key: there.Key, Owner: 7}); err != nil {
		t.Fatal(err)
	}
	mustCommit(d, t)
	forget(t, d, bpf.MapNatOwners, bpf.MapServiceSources)
	next := tablesOf(t, cfg, nil)
	var owner bpf.NatOwner
	if err := next.Objects.Maps.NatOwners.Lookup(uint32(7), &owner); err != nil || owner != (bpf.NatOwner{Established: 1}) {
		t.Errorf("the owner has %+v, %v", owner, err)
	}
	if changed, err := next.Services.Sync(fixtures.Crowd(3)); changed != 0 || err != nil {
		t.Errorf("%d entries of Services are written again: %v", changed, err)
	}
	if n, err := table.Count(next.Objects.Maps.Nat); n != 1 || err != nil {
		t.Errorf("%d connections are kept: %v", n, err)
	}
}

// Successive versions leave only their own pins, and none adopts what an earlier run of its own has left.
func TestVersionsComeAndGo(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true}
	here := fwd.Endpoint{Interface: 7}
	for i, version := range []func(testing.TB, *ebpf.CollectionSpec){nil, nextVersion, nil, nextVersion} {
		d := tablesOf(t, cfg, version)
		all, err := d.Endpoints.All()
		if err != nil || len(all) != 0 {
			t.Errorf("version %d starts with %v: %v", i, all, err)
		}
		if _, err := d.Endpoints.Sync(map[netip.Addr]fwd.Endpoint{netip.MustParseAddr("10.0.0.1"): here}); err != nil {
			t.Fatal(err)
		}
		mustCommit(d, t)
		want := []string{load.CommittedName}
		for _, name := range load.PinnedMaps {
			want = append(want, d.Objects.Pins.Name(name))
		}
		slices.Sort(want)
		if got := pinsAt(t, cfg.Root); !slices.Equal(got, want) {
			t.Errorf("pins of version %d are %q, want %q", i, got, want)
		}
		if again := tablesOf(t, cfg, version); len(again.Objects.Fresh) > 0 {
			t.Errorf("version %d does not find its own %q", i, again.Objects.Fresh)
		}
	}
}
