package load_test

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
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/fwd"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/harness"
	"github.com/beeline-cni/beeline/internal/datapath/lb"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
	"github.com/beeline-cni/beeline/internal/testenv"
)

// holdsServices fails the test unless the maps have exactly these ports.
func holdsServices(tb testing.TB, s *lb.Services, want ...service.Port) {
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
	if diff := cmp.Diff(wanted, got, fixtures.CompareEntries, byFrontend); diff != "" {
		tb.Errorf("Services (-wanted +kernel):\n%s", diff)
	}
}

// Resized maps keep their entries, including entries that old programs add until the new ones replace them.
func TestResizedMapsKeepEntries(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true, Sizes: config.Sizes{Services: 64, Backends: 256, NAT: 128, NATPending: 128, Affinities: 128}}
	d := harness.OpenTables(t, cfg, fixtures.TestLog(t))
	all := fixtures.Crowd(5)
	all[0].Entries[1].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	if _, err := d.Services.Sync(all); err != nil {
		t.Fatal(err)
	}
	there, back := fixtures.ClientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), 40000, 1)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, there)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, back)
	if err := d.Objects.Maps.Affinities.Put(bpf.Client{Service: 1}, bpf.Affinity{Set: 1}); err != nil {
		t.Fatal(err)
	}
	if err := d.Objects.Maps.ServiceCounts.Put(uint32(1), make([]bpf.ServiceCount, fixtures.PossibleCPUs(t))); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}

	cfg.Sizes = config.Sizes{Services: 100, Backends: 300, NAT: 200, NATPending: 200, Affinities: 200}
	next := harness.OpenTables(t, cfg, fixtures.TestLog(t))
	if changed, err := next.Services.Sync(all); err != nil || changed != 0 {
		t.Errorf("%d entries are written again: %v", changed, err)
	}
	holdsServices(t, next.Services, all...)
	late, lateBack := fixtures.ClientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), 50000, 1)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, late)
	fixtures.Half{}.Put(t, d.Objects.Maps.Nat, lateBack)
	newer := there
	newer.Value.Packets = 9
	fixtures.Half{Quiet: -time.Second}.Put(t, next.Objects.Maps.Nat, newer)
	if err := next.Commit(); err != nil {
		t.Fatal(err)
	}
	last := harness.OpenTables(t, cfg, fixtures.TestLog(t))
	if len(last.Objects.Fresh) > 0 || len(last.Objects.Resized) > 0 {
		t.Errorf("maps %v and %v are not what was committed", last.Objects.Fresh, last.Objects.Resized)
	}
	for name, want := range map[string]int{bpf.MapNat: 4, bpf.MapAffinities: 1, bpf.MapServiceCounts: 1, bpf.MapServiceSources: 1} {
		if n, err := table.Count(last.Objects.ByName[name]); err != nil || n != want {
			t.Errorf("%d entries of %s are left of %d: %v", n, name, want, err)
		}
	}
	var kept bpf.NatEntry
	if err := last.Objects.Maps.Nat.Lookup(newer.Key, &kept); err != nil || kept.Packets != 9 {
		t.Errorf("an old entry has overwritten a newer one: %+v, %v", kept, err)
	}
}

// A map that becomes too small keeps the entries that fit, and the log says how many are lost.
func TestShrunkMapSaysWhatIsLost(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true, Sizes: config.Sizes{NAT: 100}}
	d := harness.OpenTables(t, cfg, fixtures.TestLog(t))
	for i := range 20 {
		there, back := fixtures.ClientTo(netip.MustParseAddrPort("10.1.2.2:8080"), uint8(cluster.TCP), uint16(40000+2*i), 1)
		fixtures.Half{}.Put(t, d.Objects.Maps.Nat, there)
		fixtures.Half{}.Put(t, d.Objects.Maps.Nat, back)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg.Sizes.NAT = 30
	var said strings.Builder
	next := harness.OpenTables(t, cfg, slog.New(slog.NewTextHandler(&said, nil)))
	if n, err := table.Count(next.Objects.Maps.Nat); err != nil || n != 30 {
		t.Errorf("%d entries fit: %v", n, err)
	}
	if !strings.Contains(said.String(), "map=nat size=30 lost=10") {
		t.Errorf("the log says:\n%s", said.String())
	}
}

// Without Services the entries of Services are not copied.
func TestServicesOffAndOn(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Services: true}
	d := harness.OpenTables(t, cfg, fixtures.TestLog(t))
	if _, err := d.Services.Sync(fixtures.Crowd(3)); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg.Services = false
	d = harness.OpenTables(t, cfg, fixtures.TestLog(t))
	if n, err := table.Count(d.Objects.Maps.Services); err != nil || n != 0 || d.Objects.Maps.Services.MaxEntries() != 1 {
		t.Errorf("%d entries with a capacity of %d: %v", n, d.Objects.Maps.Services.MaxEntries(), err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg.Services = true
	d = harness.OpenTables(t, cfg, fixtures.TestLog(t))
	if _, err := d.Services.Sync(fixtures.Crowd(3)); err != nil {
		t.Fatal(err)
	}
	holdsServices(t, d.Services, fixtures.Crowd(3)...)
}

// A larger route table starts with the entries of the smaller one, and a full one names the flag to raise.
func TestRoutesAreSized(t *testing.T) {
	testenv.Root(t)
	cfg := config.Datapath{Root: fixtures.Bpffs(t), Sizes: config.Sizes{Routes: 4}}
	d := harness.OpenTables(t, cfg, fixtures.TestLog(t))
	want := map[netip.Prefix]fwd.Route{}
	for i := range byte(4) {
		want[netip.PrefixFrom(netip.AddrFrom4([4]byte{10, i, 0, 0}), 16)] = fwd.Route{Kind: fwd.RouteCluster}
	}
	if _, err := d.Routes.Sync(want); err != nil {
		t.Fatal(err)
	}
	want[fixtures.Prefix("10.9.0.0/16")] = fwd.Route{Kind: fwd.RouteCluster}
	var full *table.FullError
	if _, err := d.Routes.Sync(want); !errors.As(err, &full) || *full != (table.FullError{Map: bpf.MapRoutes, Size: 4, Flag: "--routes-max"}) {
		t.Errorf("a fifth route: %v", err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	cfg.Sizes.Routes = 8
	next := harness.OpenTables(t, cfg, fixtures.TestLog(t))
	if all, err := next.Routes.All(); err != nil || len(all) != 4 {
		t.Errorf("copied routes are %v: %v", all, err)
	}
	if _, err := next.Routes.Sync(want); err != nil {
		t.Errorf("a fifth route, with a capacity of eight: %v", err)
	}
}
