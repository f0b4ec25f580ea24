package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/service"
)

// serviceTables are the maps of Services with the tables that keep them.
type serviceTables struct {
	*objects
	Services *Services
}

// openServices opens the maps of Services, pinned below a root of their own unless cfg has one.
func openServices(tb testing.TB, cfg Config) *serviceTables {
	tb.Helper()
	cfg.Services = true
	o := openMaps(tb, cfg)
	return &serviceTables{o, newServices(&o.maps, cfg.MaglevSize)}
}

// restart opens what a killed agent left: one that closed nothing.
func restart(tb testing.TB, d *serviceTables) *serviceTables {
	tb.Helper()
	if err := d.Commit(); err != nil {
		tb.Fatal(err)
	}
	return openServices(tb, d.config)
}

func addrs(tb testing.TB, all ...string) []netip.AddrPort {
	tb.Helper()
	var out []netip.AddrPort
	for _, a := range all {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

// portNamed is a port of a Service with one frontend for each of the addresses.
func portNamed(name string, backends []netip.AddrPort, frontends ...string) service.Port {
	p := service.Port{Name: service.PortName{Service: cluster.Key{Namespace: "default", Name: name}, Number: 80, Protocol: cluster.TCP}}
	for _, f := range frontends {
		at := netip.MustParseAddrPort(f)
		p.Entries = append(p.Entries, service.Entry{
			Frontend: service.Frontend{Address: at.Addr(), Port: at.Port(), Protocol: cluster.TCP},
			Kind:     service.KindClusterIP,
			Inside:   service.Backends{Addresses: backends},
			Outside:  service.Backends{Without: service.Pass},
		})
	}
	return p
}

// nodePort makes the last frontend one for the world, too.
func nodePort(p service.Port) service.Port {
	e := &p.Entries[len(p.Entries)-1]
	e.Kind = service.KindNodePort
	e.Inside.Maglev = len(e.Inside.Addresses) > 0
	e.Outside = e.Inside
	return p
}

// crowd gives so many Services of ten backends each, all different, with a ClusterIP and a NodePort.
func crowd(services int) []service.Port {
	var all []service.Port
	for i := range services {
		var backends []netip.AddrPort
		for j := range 10 {
			backends = append(backends, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j + 1)}), 8080))
		}
		p := portNamed(fmt.Sprintf("service-%d", i), backends, fmt.Sprintf("10.96.%d.%d:80", i>>8, i&0xff), fmt.Sprintf("192.0.2.1:%d", 30000+i))
		all = append(all, nodePort(p))
	}
	return all
}

var compareEntries = cmp.Options{
	compareAddresses,
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmpopts.EquateEmpty(),
}

// holds fails the test unless the kernel has exactly these ports.
func holds(tb testing.TB, s *Services, want ...service.Port) {
	tb.Helper()
	all, err := s.All()
	if err != nil {
		tb.Fatal(err)
	}
	got := map[service.PortName][]service.Entry{}
	for _, p := range all {
		if len(p.Entries) > 0 {
			got[p.Name] = p.Entries
		}
	}
	wanted := map[service.PortName][]service.Entry{}
	for _, p := range want {
		wanted[p.Name] = slices.SortedFunc(slices.Values(p.Entries), func(a, b service.Entry) int { return compareFrontends(a.Frontend, b.Frontend) })
	}
	if diff := cmp.Diff(wanted, got, compareEntries); diff != "" {
		tb.Errorf("Services (-wanted +kernel):\n%s", diff)
	}
}

// entries counts the entries of the maps that Sync and Apply write.
func entries(tb testing.TB, s *Services) map[string]int {
	tb.Helper()
	counts := map[string]int{}
	for name, m := range map[string]*ebpf.Map{
		bpfMapServices: s.services, bpfMapBackends: s.sets.m, bpfMapMaglev: s.tables.m, bpfMapServiceSources: s.sources.m,
	} {
		n, err := countEntries(m)
		if err != nil {
			tb.Fatal(err)
		}
		counts[name] = n
	}
	return counts
}

// later sweeps when the time of grace is over.
func later(tb testing.TB, s *Services) {
	tb.Helper()
	if err := s.Sweep(time.Now().Add(2 * grace)); err != nil {
		tb.Error(err)
	}
}

func possibleCPUs(tb testing.TB) int {
	tb.Helper()
	n, err := ebpf.PossibleCPU()
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
