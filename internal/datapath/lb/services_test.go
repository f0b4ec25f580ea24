package lb

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// What is written comes back, with every field; writing it again touches nothing; and when it goes, nothing of it stays.
func TestServicesRoundTrip(t *testing.T) {
	s := openServices(t, config.Datapath{}).Services
	web := fixtures.NodePort(fixtures.PortNamed("web", fixtures.Addrs(t, "10.1.1.2:8080", "10.1.2.2:8080", "[fd00:1::2]:8080"), "10.96.0.1:80", "192.0.2.1:30080"))
	sticky := fixtures.PortNamed("sticky", fixtures.Addrs(t, "10.1.1.2:53"), "10.96.0.2:53")
	sticky.Entries[0].Frontend.Protocol = cluster.UDP
	sticky.Entries[0].Affinity = 3 * time.Hour
	empty := fixtures.PortNamed("empty", nil, "[fd00:96::3]:443")
	dropping := fixtures.PortNamed("dropping", nil, "10.96.0.4:443")
	dropping.Entries[0].Internal.Without = service.Drop
	guarded := fixtures.NodePort(fixtures.PortNamed("guarded", fixtures.Addrs(t, "10.1.1.3:443"), "203.0.113.1:443"))
	guarded.Entries[0].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	guarded.Entries[0].DSR = true
	all := []service.Port{web, sticky, empty, dropping, guarded}
	const frontends, backends, blocks, sources = 6, 3 + 1 + 1, 3 + 1, 2
	if changed, err := s.Sync(all); err != nil || changed != frontends+backends+blocks+sources {
		t.Errorf("%d entries changed: %v", changed, err)
	}
	holds(t, s, all...)
	if changed, err := s.Sync(all); err != nil || changed != 0 {
		t.Errorf("%d entries are written again: %v", changed, err)
	}
	if _, err := s.Sync(nil); err != nil {
		t.Fatal(err)
	}
	holds(t, s)
	later(t, s)
	for name, n := range entries(t, s) {
		if n != 0 {
			t.Errorf("%d entries are left in %s", n, name)
		}
	}
}

// Sets and tables are kept once: ports of one Service share a table, and Services of the same backends share everything.
func TestServicesShare(t *testing.T) {
	s := openServices(t, config.Datapath{}).Services
	http := fixtures.NodePort(fixtures.PortNamed("http", fixtures.Addrs(t, "10.1.1.2:80", "10.1.2.2:80"), "10.96.0.1:80", "192.0.2.1:30080"))
	https := fixtures.NodePort(fixtures.PortNamed("https", fixtures.Addrs(t, "10.1.1.2:443", "10.1.2.2:443"), "10.96.0.1:443", "192.0.2.1:30443"))
	twin := fixtures.NodePort(fixtures.PortNamed("twin", fixtures.Addrs(t, "10.1.1.2:80", "10.1.2.2:80"), "10.96.0.2:80", "192.0.2.1:30081"))
	if err := s.Apply([]service.Port{http, https, twin}, nil); err != nil {
		t.Fatal(err)
	}
	holds(t, s, http, https, twin)
	blocks := maglevBlocks(service.MaglevSize(2), 2)
	if got := entries(t, s); got[bpf.MapBackends] != 4 || got[bpf.MapMaglev] != blocks {
		t.Errorf("entries %v, expected 4 backends and %d blocks", got, blocks)
	}
	if err := s.Apply(nil, []service.PortName{http.Name}); err != nil {
		t.Fatal(err)
	}
	later(t, s)
	holds(t, s, https, twin)
	if got := entries(t, s); got[bpf.MapBackends] != 4 {
		t.Errorf("entries %v: what is shared has gone with its first user", got)
	}
}

// A table in the kernel is the one that package service computes, whatever the width of its entries.
func TestMaglevBlocks(t *testing.T) {
	for name, backends := range map[string]int{"narrow": 3, "widest narrow one": 256, "wide": 257} {
		t.Run(name, func(t *testing.T) {
			d := openServices(t, config.Datapath{})
			var set []netip.AddrPort
			for i := range backends {
				set = append(set, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80))
			}
			p := fixtures.NodePort(fixtures.PortNamed("web", set, "192.0.2.1:30080"))
			if err := d.Services.Apply([]service.Port{p}, nil); err != nil {
				t.Fatal(err)
			}
			side := d.Services.frontends[frontendOf(p.Entries[0].Frontend)].value.External
			var got []uint16
			for i := range int(side.MaglevSize) {
				at := i * int(side.MaglevWidth)
				var block bpf.MaglevBlock
				if err := d.Objects.Maps.Maglev.Lookup(bpf.MaglevKey{Table: side.Maglev, Block: uint32(at / maglevBlock)}, &block); err != nil {
					t.Fatal(err)
				}
				entry := uint16(block.Entries[at%maglevBlock])
				if side.MaglevWidth == 2 {
					entry |= uint16(block.Entries[at%maglevBlock+1]) << 8
				}
				got = append(got, entry)
			}
			var addresses []netip.Addr
			for _, b := range set {
				addresses = append(addresses, b.Addr())
			}
			if !slices.Equal(got, service.Maglev(addresses, service.MaglevSize(backends))) {
				t.Error("the table is another one")
			}
		})
	}
}

// The next agent finds everything as it was and writes nothing; what it no longer wants goes.
func TestServicesRestart(t *testing.T) {
	all := fixtures.Crowd(50)
	all[7].Entries[1].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	d := openServices(t, config.Datapath{})
	if _, err := d.Services.Sync(all); err != nil {
		t.Fatal(err)
	}
	before, err := d.Services.All()
	if err != nil {
		t.Fatal(err)
	}
	d = restart(t, d)
	slices.Reverse(all) // what the cluster says comes in another order
	if changed, err := d.Services.Sync(all); err != nil || changed != 0 {
		t.Errorf("%d entries are written again: %v", changed, err)
	}
	after, err := d.Services.All()
	if err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if before[i].ID != after[i].ID {
			t.Errorf("%s was number %d and is %d", before[i].Name.Service, before[i].ID, after[i].ID)
		}
	}
	d = restart(t, d)
	if _, err := d.Services.Sync(all[:49]); err != nil {
		t.Fatal(err)
	}
	later(t, d.Services)
	holds(t, d.Services, all[:49]...)
	if got := entries(t, d.Services); got[bpf.MapBackends] != 490 || got[bpf.MapServices] != 98 {
		t.Errorf("entries %v", got)
	}
}

// A Service that comes while the next agent has not seen the cluster yet does not cost the others their place.
func TestServicesApplyBeforeSync(t *testing.T) {
	all := fixtures.Crowd(3)
	d := openServices(t, config.Datapath{})
	if _, err := d.Services.Sync(all[:2]); err != nil {
		t.Fatal(err)
	}
	d = restart(t, d)
	if err := d.Services.Apply(all[2:], nil); err != nil {
		t.Fatal(err)
	}
	later(t, d.Services)
	if got := entries(t, d.Services); got[bpf.MapBackends] != 30 || got[bpf.MapServices] != 6 {
		t.Errorf("entries %v", got)
	}
	if _, err := d.Services.Sync(all); err != nil {
		t.Fatal(err)
	}
	holds(t, d.Services, all...)
}

// A frontend belongs to the first port that wants it. The other one says so until it is free, and then gets it.
func TestServicesConflict(t *testing.T) {
	s := openServices(t, config.Datapath{}).Services
	first := fixtures.PortNamed("first", fixtures.Addrs(t, "10.1.1.2:80"), "203.0.113.1:80")
	second := fixtures.PortNamed("second", fixtures.Addrs(t, "10.1.1.3:80"), "203.0.113.1:80", "203.0.113.2:80")
	rest := fixtures.PortNamed("second", fixtures.Addrs(t, "10.1.1.3:80"), "203.0.113.2:80")
	_, err := s.Sync([]service.Port{first, second})
	var conflict *ConflictError
	var of *PortError
	if !errors.As(err, &conflict) || conflict.Holder != first.Name || !errors.As(err, &of) || of.Port != second.Name {
		t.Errorf("error is %v", err)
	}
	if want := "Service default/second, port 80: 203.0.113.1:80/TCP is in use by Service default/first"; err.Error() != want {
		t.Errorf("error is %q, expected %q", err, want)
	}
	holds(t, s, first, rest)
	if err := s.Apply(fixtures.Crowd(1), nil); !errors.As(err, &conflict) {
		t.Errorf("another change forgets the conflict: %v", err)
	}
	if err := s.Apply(nil, []service.PortName{first.Name}); err != nil {
		t.Errorf("the conflict is over: %v", err)
	}
	holds(t, s, second, fixtures.Crowd(1)[0])
	if _, err := s.Sync([]service.Port{first, second}); !errors.As(err, &conflict) || conflict.Holder != first.Name {
		t.Errorf("the first one by order does not get it back: %v", err)
	}
	holds(t, s, first, rest)
	if err := s.Apply(nil, []service.PortName{second.Name}); err != nil {
		t.Errorf("the conflict is over: %v", err)
	}
	holds(t, s, first)
}

// One change may hand a frontend from one port to another; it is never without a backend in between.
func TestServicesHandOver(t *testing.T) {
	s := openServices(t, config.Datapath{}).Services
	old := fixtures.PortNamed("old", fixtures.Addrs(t, "10.1.1.2:80"), "192.0.2.1:30080", "10.96.0.1:80")
	if err := s.Apply([]service.Port{old}, nil); err != nil {
		t.Fatal(err)
	}
	less := fixtures.PortNamed("old", fixtures.Addrs(t, "10.1.1.2:80"), "10.96.0.1:80")
	taker := fixtures.PortNamed("new", fixtures.Addrs(t, "10.1.1.3:80"), "192.0.2.1:30080")
	if err := s.Apply([]service.Port{taker, less}, nil); err != nil {
		t.Fatal(err)
	}
	holds(t, s, less, taker)
	heir := fixtures.PortNamed("heir", fixtures.Addrs(t, "10.1.1.4:80"), "192.0.2.1:30080")
	if err := s.Apply([]service.Port{heir}, []service.PortName{taker.Name}); err != nil {
		t.Fatal(err)
	}
	holds(t, s, less, heir)
}

func TestServicesRejectNonsense(t *testing.T) {
	s := openServices(t, config.Datapath{}).Services
	good := fixtures.PortNamed("good", fixtures.Addrs(t, "10.1.1.2:80"), "10.96.0.1:80")
	noPort := fixtures.PortNamed("no-port", fixtures.Addrs(t, "10.1.1.2:80"), "10.96.0.2:0")
	ranges := fixtures.PortNamed("ranges", fixtures.Addrs(t, "10.1.1.2:80"), "203.0.113.1:80", "203.0.113.2:80")
	ranges.Entries[0].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	ranges.Entries[1].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.3.0/24")}
	crowded := fixtures.PortNamed("crowded", make([]netip.AddrPort, service.MaxBackends+1), "10.96.0.3:80")
	_, err := s.Sync([]service.Port{noPort, good, ranges, crowded})
	for _, want := range []string{
		"Service default/no-port, port 80: 10.96.0.2:0/TCP is not an address and a port",
		"Service default/ranges, port 80: frontends of one port have different source ranges",
		"Service default/crowded, port 80: 65536 backends of 10.96.0.3:80/TCP are more than the 65535",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	holds(t, s, good)
}

// Thousands of errors make a short message.
func TestServicesManyTroubles(t *testing.T) {
	s := openServices(t, config.Datapath{}).Services
	var all []service.Port
	for i := range 100 {
		all = append(all, fixtures.PortNamed(string(rune('a'+i%26))+strings.Repeat("x", i), nil, "203.0.113.1:80"))
	}
	_, err := s.Sync(all)
	if lines := strings.Count(err.Error(), "\n") + 1; lines != errorsReported+1 || !strings.HasSuffix(err.Error(), "and 89 more ports of Services") {
		t.Errorf("%d lines: %v", lines, err)
	}
}

// The counters of a Service are its own, and go with it.
func TestServiceCounts(t *testing.T) {
	d := openServices(t, config.Datapath{})
	p := fixtures.PortNamed("web", fixtures.Addrs(t, "10.1.1.2:80"), "10.96.0.1:80")
	if err := d.Services.Apply([]service.Port{p}, nil); err != nil {
		t.Fatal(err)
	}
	all, err := d.Services.All()
	if err != nil {
		t.Fatal(err)
	}
	var perCPU []bpf.ServiceCount
	if err := d.Objects.Maps.ServiceCounts.Put(all[0].ID, make([]bpf.ServiceCount, fixtures.PossibleCPUs(t))); err != nil {
		t.Fatal(err)
	}
	if err := d.Objects.Maps.ServiceCounts.Lookup(all[0].ID, &perCPU); err != nil {
		t.Fatal(err)
	}
	for i := range perCPU {
		perCPU[i] = bpf.ServiceCount{Connections: 3, Rejected: 1}
	}
	if err := d.Objects.Maps.ServiceCounts.Put(all[0].ID, perCPU); err != nil {
		t.Fatal(err)
	}
	cpus := uint64(len(perCPU))
	all, err = d.Services.All()
	if want := (ServiceCount{3 * cpus, cpus}); err != nil || len(all) != 1 || all[0].Count != want {
		t.Errorf("counts are %v, expected %v: %v", all, want, err)
	}
	d = restart(t, d) // whose first Sync does not have it any more
	if _, err := d.Services.Sync(nil); err != nil {
		t.Fatal(err)
	}
	later(t, d.Services)
	if n, err := table.Count(d.Objects.Maps.ServiceCounts); err != nil || n != 0 {
		t.Errorf("%d counts are left: %v", n, err)
	}
	// A new Service gets neither the number nor what is left under it.
	if err := d.Services.Apply([]service.Port{p}, nil); err != nil {
		t.Fatal(err)
	}
	if again, err := d.Services.All(); err != nil || again[0].ID == all[0].ID {
		t.Errorf("the new Service has number %d again: %v", again[0].ID, err)
	}
}
