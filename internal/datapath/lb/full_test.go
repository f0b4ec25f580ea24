package lb

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

func manyBackends(n int, third byte) []netip.AddrPort {
	var all []netip.AddrPort
	for i := range n {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, third, byte(i)}), 80))
	}
	return all
}

// isFull fails the test unless the error names the Service, the map, its size and the flag.
func isFull(tb testing.TB, err error, name service.PortName, want table.FullError) {
	tb.Helper()
	var full *table.FullError
	var of *PortError
	if !errors.As(err, &full) || *full != want || !errors.As(err, &of) || of.Port != name {
		tb.Errorf("error is %v, expected one of %s with %+v", err, name.Service, want)
	}
}

// Each map in turn has no room: what is there stays and goes on being changed, what does not fit is an error until it does.
func TestServicesFull(t *testing.T) {
	for _, c := range []struct {
		name  string
		sizes config.Sizes
		full  table.FullError
		// fits and tooMuch are Services of which only the first one fits.
		fits, tooMuch service.Port
	}{
		{"services", config.Sizes{Services: 3}, table.FullError{Map: bpf.MapServices, Size: 3, Flag: "--services-max"},
			fixtures.PortNamed("fits", manyBackends(1, 1), "10.96.0.1:80", "10.96.0.1:81"), fixtures.PortNamed("much", manyBackends(1, 2), "10.96.0.2:80", "10.96.0.2:81")},
		{"backends", config.Sizes{Backends: 10}, table.FullError{Map: bpf.MapBackends, Size: 10, Flag: "--backends-max"},
			fixtures.PortNamed("fits", manyBackends(6, 1), "10.96.0.1:80"), fixtures.PortNamed("much", manyBackends(6, 2), "10.96.0.2:80")},
		{"maglev", config.Sizes{Backends: 10}, table.FullError{Map: bpf.MapMaglev, Size: 5, Flag: "--backends-max"},
			fixtures.NodePort(fixtures.PortNamed("fits", manyBackends(3, 1), "10.96.0.1:80")), fixtures.NodePort(fixtures.PortNamed("much", manyBackends(3, 2), "10.96.0.2:80"))},
		{"sources", config.Sizes{Services: 3}, table.FullError{Map: bpf.MapServiceSources, Size: 3, Flag: "--services-max"},
			guardedBy("fits", "10.96.0.1:80", "192.0.2.0/24", "192.0.3.0/24"), guardedBy("much", "10.96.0.2:80", "192.0.4.0/24", "192.0.5.0/24")},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openServices(t, config.Datapath{Sizes: c.sizes})
			s := d.Services
			_, err := s.Sync([]service.Port{c.fits, c.tooMuch})
			isFull(t, err, c.tooMuch.Name, c.full)
			whole(t, s, c.fits, c.tooMuch)
			isFull(t, s.Apply(nil, nil), c.tooMuch.Name, c.full) // it still stands
			_, err = s.Sync([]service.Port{c.fits, c.tooMuch})
			isFull(t, err, c.tooMuch.Name, c.full)

			smaller := service.Port{Name: c.fits.Name, Entries: c.fits.Entries[:1]}
			smaller.Entries[0].Internal = service.Backends{Addresses: c.fits.Entries[0].Internal.Addresses[:1]}
			smaller.Entries[0].External = service.Backends{}
			smaller.Entries[0].Sources = nil
			var full *table.FullError
			if err := s.Apply([]service.Port{smaller}, nil); err != nil && !errors.As(err, &full) {
				t.Error(err)
			}
			later(t, s) // now there is room
			holds(t, s, smaller, c.tooMuch)
			if err := s.Apply(nil, nil); err != nil {
				t.Errorf("the error stands although there is room: %v", err)
			}
		})
	}
}

func guardedBy(name, frontend string, sources ...string) service.Port {
	p := fixtures.PortNamed(name, manyBackends(1, 9), frontend)
	p.Entries[0].Sources = prefixes(sources...)
	return p
}

// A Service whose new backends do not fit keeps its old ones, also when everything is synchronised and after a restart.
func TestServicesFullKeepsOld(t *testing.T) {
	d := openServices(t, config.Datapath{Sizes: config.Sizes{Backends: 10}})
	old := fixtures.PortNamed("web", manyBackends(6, 1), "10.96.0.1:80", "10.96.0.2:80")
	if _, err := d.Services.Sync([]service.Port{old}); err != nil {
		t.Fatal(err)
	}
	grown := fixtures.PortNamed("web", manyBackends(7, 1), "10.96.0.1:80", "10.96.0.2:80")
	want := table.FullError{Map: bpf.MapBackends, Size: 10, Flag: "--backends-max"}
	isFull(t, d.Services.Apply([]service.Port{grown}, nil), grown.Name, want)
	holds(t, d.Services, old)
	_, err := d.Services.Sync([]service.Port{grown})
	isFull(t, err, grown.Name, want)
	holds(t, d.Services, old)
	d = restart(t, d)
	_, err = d.Services.Sync([]service.Port{grown})
	isFull(t, err, grown.Name, want)
	holds(t, d.Services, old)
	if err := d.Services.Apply([]service.Port{fixtures.PortNamed("web", manyBackends(3, 1), "10.96.0.1:80", "10.96.0.2:80")}, nil); err != nil {
		t.Error(err)
	}
}

// Of thousands that do not fit, all that do are there, and the failure of the others costs little.
func TestServicesFullOfMany(t *testing.T) {
	const room, wanted = 100, 400
	d := openServices(t, config.Datapath{Sizes: config.Sizes{Services: room}})
	var all []service.Port
	for i := range wanted {
		all = append(all, fixtures.PortNamed(fmt.Sprint("web-", i), manyBackends(2, byte(i)), fmt.Sprintf("10.96.%d.%d:80", i>>8, i&0xff)))
	}
	_, err := d.Services.Sync(all)
	isFull(t, err, all[room].Name, table.FullError{Map: bpf.MapServices, Size: room, Flag: "--services-max"})
	holds(t, d.Services, all[:room]...)
	var gone []service.PortName
	for _, p := range all[:10] {
		gone = append(gone, p.Name)
	}
	if err := d.Services.Apply(nil, gone); err == nil {
		t.Error("all fit of a sudden")
	}
	if got := entries(t, d.Services)[bpf.MapServices]; got != room {
		t.Errorf("%d frontends, capacity %d", got, room)
	}
}

// whole fails the test unless every frontend in the kernel is as one of the ports wants it.
func whole(tb testing.TB, s *Services, ports ...service.Port) {
	tb.Helper()
	all, err := s.All()
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range all {
		for _, e := range p.Entries {
			if !wantedBy(ports, p.Name, e) {
				tb.Errorf("%s has %+v", p.Name.Service, e)
			}
		}
	}
}
