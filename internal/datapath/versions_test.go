package datapath

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
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// openVersion is open for programs of another version; nil is this one.
func openVersion(tb testing.TB, cfg Config, version func(testing.TB, *ebpf.CollectionSpec), programs []string) (*opened, error) {
	tb.Helper()
	l, err := loaderFor(cfg, testLog(tb))
	if err != nil {
		return nil, err
	}
	if version != nil {
		version(tb, l.spec)
	}
	o, err := l.open(cfg, programs, testLog(tb))
	if err != nil {
		return nil, err
	}
	return assemble(o)
}

// nextVersion has other meanings for entries of the same size, in maps of each group and in some of none.
func nextVersion(tb testing.TB, spec *ebpf.CollectionSpec) {
	tb.Helper()
	swap(tb, spec, "endpoint", "pod_mac", "host_mac")
	swap(tb, spec, "route", "next_hop_mac", "uplink_mac")
	swap(tb, spec, "nat_entry", "source", "destination")
	swap(tb, spec, "ct_entry", "ingress", "egress")
	swap(tb, spec, "policy_pod", "ingress", "egress")
	swap(tb, spec, "backend_key", "set", "index")
}

// tablesOf is what the agent of a version does with maps, without loading programs.
func tablesOf(t *testing.T, cfg Config, version func(testing.TB, *ebpf.CollectionSpec)) *opened {
	t.Helper()
	d, err := openVersion(t, cfg, version, nil)
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

func (d *opened) mustCommit(t *testing.T) {
	t.Helper()
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
}

// pinsAt lists the pins of maps below a root.
func pinsAt(t *testing.T, root string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(mapDir(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// wantFresh compares the maps that a datapath begins without.
func wantFresh(t *testing.T, d *opened, want ...string) {
	t.Helper()
	got := slices.Sorted(slices.Values(d.objects.fresh))
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("maps %q are fresh, want %q", got, want)
	}
}

var serviceGroup = []string{
	bpfMapServices, bpfMapBackends, bpfMapMaglev, bpfMapAffinities, bpfMapAffinitiesExt, bpfMapServiceSources, bpfMapServiceCounts, bpfMapSockStorage, bpfMapSockUdp,
}

// A map whose layout has changed goes, and with it what refers to it; nothing else does.
func TestLayoutOfOneMapChanges(t *testing.T) {
	testenv.Root(t)
	for _, c := range []struct {
		of, one, other string
		fresh          []string
	}{
		{"backend_key", "set", "index", serviceGroup},
		{"affinity", "set", "index", []string{bpfMapAffinities, bpfMapAffinitiesExt}},
		{"sock_entry", "service", "backend", []string{bpfMapSockStorage, bpfMapSockUdp}},
		{"nat_owner", "established", "pending", []string{bpfMapNatOwners}},
		{"ct_slot", "pod", "slot", []string{bpfMapConntrack, bpfMapCtSlots, bpfMapCtShares}},
		{"policy_key", "set", "identity", []string{bpfMapPolicyPods, bpfMapIdentities, bpfMapIdentityCidrs, bpfMapPolicies, bpfMapPolicyPorts}},
		{"uplink", "ipv4", "ipv6", []string{bpfMapUplinks}},
	} {
		t.Run(c.of, func(t *testing.T) {
			cfg := Config{Root: bpffs(t)}
			tablesOf(t, cfg, nil).mustCommit(t)
			d := tablesOf(t, cfg, func(tb testing.TB, spec *ebpf.CollectionSpec) { swap(tb, spec, c.of, c.one, c.other) })
			wantFresh(t, d, c.fresh...)
		})
	}
}

// The programs of the version before keep whole what they use.
func TestAdoptedMapsAreWhole(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true}
	d := tablesOf(t, cfg, nil)
	if _, err := d.Services.Sync(crowd(3)); err != nil {
		t.Fatal(err)
	}
	d.mustCommit(t)
	next := tablesOf(t, cfg, func(tb testing.TB, spec *ebpf.CollectionSpec) { swap(tb, spec, "service", "id", "affinity") })
	if _, err := next.Services.Sync([]service.Port{crowd(4)[3]}); err != nil {
		t.Fatal(err)
	}
	if err := next.Services.Sweep(time.Now().Add(time.Minute)); err != nil { // long after the time of grace
		t.Error(err)
	}
	if got, err := countEntries(d.objects.maps.Backends); err != nil || got != 30 {
		t.Errorf("of the backends that the old programs use, %d are left: %v", got, err)
	}
	if got, err := countEntries(next.objects.maps.Backends); err != nil || got != 10 {
		t.Errorf("the new programs have %d backends: %v", got, err)
	}
}

// forget leaves what a version leaves that did not have these maps.
func forget(t *testing.T, d *opened, added ...string) {
	t.Helper()
	path := filepath.Join(mapDir(d.objects.config.Root), committedName)
	names, _, err := committedPins(d.objects.config.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range added {
		names = slices.DeleteFunc(names, func(pin string) bool { return pin == d.objects.pins.name(name) })
		if err := os.Remove(d.objects.pins.path(name)); err != nil {
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

// A version that has one map more takes over all the others, whatever that one is; where the pin of a map is lost, what refers to it is given up.
func TestAddedMapKeepsItsGroup(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t)}
	d := tablesOf(t, cfg, nil)
	d.mustCommit(t)
	for _, name := range pinnedMaps {
		forget(t, d, name)
		next := tablesOf(t, cfg, nil)
		wantFresh(t, next, name)
		next.mustCommit(t)
		if err := os.Remove(next.objects.pins.path(name)); err != nil {
			t.Fatal(err)
		}
		next = tablesOf(t, cfg, nil)
		for _, other := range groups[name] {
			if !slices.Contains(next.objects.fresh, name) || slices.Contains(groups[other], name) && !slices.Contains(next.objects.fresh, other) {
				t.Errorf("without %s: %q are fresh", name, next.objects.fresh)
			}
		}
		next.mustCommit(t)
		d = next
	}
}

// Counters that a version adds count what is there already, and entries of the others are kept.
func TestAddedMapIsFilled(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true, Sizes: Sizes{Connections: 64, Openings: 64}}
	d := tablesOf(t, cfg, nil)
	if _, err := d.Services.Sync(crowd(3)); err != nil {
		t.Fatal(err)
	}
	there, _ := clientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), 40000, 1)
	half{}.put(t, d.objects.maps.Nat, there)
	if err := d.objects.maps.NatSlots.Put(uint32(5), &bpfNatSlot{Key: there.key, Owner: 7}); err != nil {
		t.Fatal(err)
	}
	d.mustCommit(t)
	forget(t, d, bpfMapNatOwners, bpfMapServiceSources)
	next := tablesOf(t, cfg, nil)
	var owner bpfNatOwner
	if err := next.objects.maps.NatOwners.Lookup(uint32(7), &owner); err != nil || owner != (bpfNatOwner{Established: 1}) {
		t.Errorf("the owner has %+v, %v", owner, err)
	}
	if changed, err := next.Services.Sync(crowd(3)); changed != 0 || err != nil {
		t.Errorf("%d entries of Services are written again: %v", changed, err)
	}
	if n, err := countEntries(next.objects.maps.Nat); n != 1 || err != nil {
		t.Errorf("%d connections are kept: %v", n, err)
	}
}

// Versions that come one after the other leave their own pins only, and none takes over what an earlier run of its own has left.
func TestVersionsComeAndGo(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true}
	here := Endpoint{Interface: 7}
	for i, version := range []func(testing.TB, *ebpf.CollectionSpec){nil, nextVersion, nil, nextVersion} {
		d := tablesOf(t, cfg, version)
		all, err := d.Endpoints.All()
		if err != nil || len(all) != 0 {
			t.Errorf("version %d begins with %v: %v", i, all, err)
		}
		if _, err := d.Endpoints.Sync(map[netip.Addr]Endpoint{netip.MustParseAddr("10.0.0.1"): here}); err != nil {
			t.Fatal(err)
		}
		d.mustCommit(t)
		want := []string{committedName}
		for _, name := range pinnedMaps {
			want = append(want, d.objects.pins.name(name))
		}
		slices.Sort(want)
		if got := pinsAt(t, cfg.Root); !slices.Equal(got, want) {
			t.Errorf("pins of version %d are %q, want %q", i, got, want)
		}
		if again := tablesOf(t, cfg, version); len(again.objects.fresh) > 0 {
			t.Errorf("version %d does not find its own %q", i, again.objects.fresh)
		}
	}
}
