package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// adoptTables is what Open does with maps, without loading programs.
func adoptTables(t testing.TB, cfg Config, log *slog.Logger) *opened {
	t.Helper()
	d, err := open(cfg, nil, log)
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

// holdsServices fails the test unless the kernel has exactly these ports.
func holdsServices(tb testing.TB, s *Services, want ...service.Port) {
	tb.Helper()
	all, err := s.All()
	if err != nil {
		tb.Fatal(err)
	}
	byFrontend := cmpopts.SortSlices(func(a, b service.Entry) bool { return fmt.Sprint(a.Frontend) < fmt.Sprint(b.Frontend) })
	got, wanted := map[service.PortName][]service.Entry{}, map[service.PortName][]service.Entry{}
	for _, p := range all {
		if len(p.Entries) > 0 {
			got[p.Name] = p.Entries
		}
	}
	for _, p := range want {
		wanted[p.Name] = p.Entries
	}
	if diff := cmp.Diff(wanted, got, compareEntries, byFrontend); diff != "" {
		tb.Errorf("Services (-wanted +kernel):\n%s", diff)
	}
}

// Maps that get another size keep what they hold, and what old programs write until the new ones have taken over.
func TestResizedMapsKeepEntries(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true, Sizes: Sizes{Services: 64, Backends: 256, Connections: 128, Openings: 128, Affinities: 128}}
	d := adoptTables(t, cfg, testLog(t))
	all := crowd(5)
	all[0].Entries[1].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	if _, err := d.Services.Sync(all); err != nil {
		t.Fatal(err)
	}
	there, back := clientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), 40000, 1)
	half{}.put(t, d.objects.maps.Nat, there)
	half{}.put(t, d.objects.maps.Nat, back)
	if err := d.objects.maps.Affinities.Put(bpfClient{Service: 1}, bpfAffinity{Set: 1}); err != nil {
		t.Fatal(err)
	}
	if err := d.objects.maps.ServiceCounts.Put(uint32(1), make([]bpfServiceCount, possibleCPUs(t))); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}

	cfg.Sizes = Sizes{Services: 100, Backends: 300, Connections: 200, Openings: 200, Affinities: 200}
	next := adoptTables(t, cfg, testLog(t))
	if changed, err := next.Services.Sync(all); err != nil || changed != 0 {
		t.Errorf("%d entries are written again: %v", changed, err)
	}
	holdsServices(t, next.Services, all...)
	late, lateBack := clientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), 50000, 1)
	half{}.put(t, d.objects.maps.Nat, late)
	half{}.put(t, d.objects.maps.Nat, lateBack)
	newer := there
	newer.value.Packets = 9
	half{quiet: -time.Second}.put(t, next.objects.maps.Nat, newer)
	if err := next.Commit(); err != nil {
		t.Fatal(err)
	}
	last := adoptTables(t, cfg, testLog(t))
	if len(last.objects.fresh) > 0 || len(last.objects.resized) > 0 {
		t.Errorf("maps %v and %v are not what was committed", last.objects.fresh, last.objects.resized)
	}
	for name, want := range map[string]int{bpfMapNat: 4, bpfMapAffinities: 1, bpfMapServiceCounts: 1, bpfMapServiceSources: 1} {
		if n, err := countEntries(last.objects.byName[name]); err != nil || n != want {
			t.Errorf("%d entries of %s are left of %d: %v", n, name, want, err)
		}
	}
	var kept bpfNatEntry
	if err := last.objects.maps.Nat.Lookup(newer.key, &kept); err != nil || kept.Packets != 9 {
		t.Errorf("an old entry has taken a newer one's place: %+v, %v", kept, err)
	}
}

// A map that becomes too small keeps what fits and says what it has lost.
func TestShrunkMapSaysWhatIsLost(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true, Sizes: Sizes{Connections: 100}}
	d := adoptTables(t, cfg, testLog(t))
	for i := range 20 {
		there, back := clientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), uint16(40000+2*i), 1)
		half{}.put(t, d.objects.maps.Nat, there)
		half{}.put(t, d.objects.maps.Nat, back)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg.Sizes.Connections = 30
	var said strings.Builder
	next := adoptTables(t, cfg, slog.New(slog.NewTextHandler(&said, nil)))
	if n, err := countEntries(next.objects.maps.Nat); err != nil || n != 30 {
		t.Errorf("%d entries fit: %v", n, err)
	}
	if !strings.Contains(said.String(), "map=nat size=30 lost=10") {
		t.Errorf("the log says:\n%s", said.String())
	}
}

// Without Services nothing of them is carried along.
func TestServicesOffAndOn(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Services: true}
	d := adoptTables(t, cfg, testLog(t))
	if _, err := d.Services.Sync(crowd(3)); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg.Services = false
	d = adoptTables(t, cfg, testLog(t))
	if n, err := countEntries(d.objects.maps.Services); err != nil || n != 0 || d.objects.maps.Services.MaxEntries() != 1 {
		t.Errorf("%d entries with room for %d: %v", n, d.objects.maps.Services.MaxEntries(), err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg.Services = true
	d = adoptTables(t, cfg, testLog(t))
	if _, err := d.Services.Sync(crowd(3)); err != nil {
		t.Fatal(err)
	}
	holdsServices(t, d.Services, crowd(3)...)
}

// A larger cluster gets a larger table of routes, which begins with what the smaller one had; and what does not fit says what to raise.
func TestRoutesAreSized(t *testing.T) {
	testenv.Root(t)
	cfg := Config{Root: bpffs(t), Sizes: Sizes{Routes: 4}}
	d := adoptTables(t, cfg, testLog(t))
	want := map[netip.Prefix]Route{}
	for i := range byte(4) {
		want[netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i, 0, 0}), 16)] = Route{Kind: RouteCluster}
	}
	if _, err := d.Routes.Sync(want); err != nil {
		t.Fatal(err)
	}
	want[prefix("10.9.0.0/16")] = Route{Kind: RouteCluster}
	var full *FullError
	if _, err := d.Routes.Sync(want); !errors.As(err, &full) || *full != (FullError{bpfMapRoutes, 4, "--routes-max"}) {
		t.Errorf("a fifth route: %v", err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	if size, err := RoutesSize(cfg.Root); err != nil || size != 4 {
		t.Errorf("the pinned map has room for %d: %v", size, err)
	}
	cfg.Sizes.Routes = 8
	next := adoptTables(t, cfg, testLog(t))
	if all, err := next.Routes.All(); err != nil || len(all) != 4 {
		t.Errorf("carried over are %v: %v", all, err)
	}
	if _, err := next.Routes.Sync(want); err != nil {
		t.Errorf("a fifth route, with room for eight: %v", err)
	}
}
