package lb

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
	"github.com/beeline-cni/beeline/internal/service"
)

// Affinities expire when the client has not returned in time, or its Service is deleted.
func TestAffinitiesExpire(t *testing.T) {
	d := openServices(t, config.Datapath{})
	sticky := fixtures.PortNamed("sticky", fixtures.Addrs(t, "10.1.1.2:80"), "10.96.0.1:80")
	sticky.Entries[0].Affinity = time.Hour
	if _, err := d.Services.Sync([]service.Port{sticky}); err != nil {
		t.Fatal(err)
	}
	clock, err := table.Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	id := d.Services.ports[sticky.Name].id
	for i, c := range []struct {
		service uint32
		quiet   time.Duration
		stays   bool
	}{{id, 0, true}, {id, 59 * time.Minute, true}, {id, 61 * time.Minute, false}, {id + 1, time.Minute, false}} {
		// No affinity can be that old after less than an hour of uptime.
		used := max(clock-c.quiet, 0)
		if used == 0 {
			c.stays = true
			used = clock
		}
		key := bpf.Client{Service: c.service, Kind: uint32(i)}
		both := []*ebpf.Map{d.Objects.Maps.Affinities, d.Objects.Maps.AffinitiesExt}
		for _, m := range both {
			if err := m.Put(key, bpf.Affinity{Used: uint64(used)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Services.Sweep(time.Now().Add(time.Duration(i+1) * 2 * affinitiesEvery)); err != nil {
			t.Fatal(err)
		}
		for _, m := range both {
			var value bpf.Affinity
			if there := m.Lookup(key, &value) == nil; there != c.stays {
				t.Errorf("%s, quiet for %s with Service %d: there is %t, expected %t", m, c.quiet, c.service, there, c.stays)
			}
		}
	}
}

// The next agent assigns no id that an affinity still uses for another set.
func TestNumbersOfAffinities(t *testing.T) {
	d := openServices(t, config.Datapath{})
	if err := d.Objects.Maps.Affinities.Put(bpf.Client{Service: 41}, bpf.Affinity{Set: 17}); err != nil {
		t.Fatal(err)
	}
	web := fixtures.PortNamed("web", fixtures.Addrs(t, "10.1.1.2:80"), "10.96.0.1:80")
	if _, err := d.Services.Backends(); err != nil {
		t.Fatal(err)
	}
	d.Services.sets.next = 17 // a possible random start
	if err := d.Services.Apply([]service.Port{web}, nil); err != nil {
		t.Fatal(err)
	}
	value := d.Services.frontends[frontendOf(web.Entries[0].Frontend)].value
	if value.Id != 42 || value.Internal.Id != 18 {
		t.Errorf("the Service is number %d and its set number %d", value.Id, value.Internal.Id)
	}
}
