package datapath

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/service"
)

// Affinities go when the client has not come back in time, or its Service has gone.
func TestAffinitiesExpire(t *testing.T) {
	d := openServices(t, Config{})
	sticky := portNamed("sticky", addrs(t, "10.1.1.2:80"), "10.96.0.1:80")
	sticky.Entries[0].Affinity = time.Hour
	if _, err := d.Services.Sync([]service.Port{sticky}); err != nil {
		t.Fatal(err)
	}
	clock, err := Monotonic()
	if err != nil {
		t.Fatal(err)
	}
	id := d.Services.ports[sticky.Name].id
	for i, c := range []struct {
		service uint32
		quiet   time.Duration
		stays   bool
	}{{id, 0, true}, {id, 59 * time.Minute, true}, {id, 61 * time.Minute, false}, {id + 1, time.Minute, false}} {
		// A machine that has not run for an hour has none that old.
		used := max(clock-c.quiet, 0)
		if used == 0 {
			c.stays = true
			used = clock
		}
		key := bpfClient{Service: c.service, Kind: uint32(i)}
		both := []*ebpf.Map{d.objects.maps.Affinities, d.objects.maps.AffinitiesExt}
		for _, m := range both {
			if err := m.Put(key, bpfAffinity{Used: uint64(used)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Services.Sweep(time.Now().Add(time.Duration(i+1) * 2 * affinitiesEvery)); err != nil {
			t.Fatal(err)
		}
		for _, m := range both {
			var value bpfAffinity
			if there := m.Lookup(key, &value) == nil; there != c.stays {
				t.Errorf("%s, quiet for %s with Service %d: there is %t, expected %t", m, c.quiet, c.service, there, c.stays)
			}
		}
	}
}

// The next agent gives no number that an affinity still knows for another set.
func TestNumbersOfAffinities(t *testing.T) {
	d := openServices(t, Config{})
	if err := d.objects.maps.Affinities.Put(bpfClient{Service: 41}, bpfAffinity{Set: 17}); err != nil {
		t.Fatal(err)
	}
	web := portNamed("web", addrs(t, "10.1.1.2:80"), "10.96.0.1:80")
	if _, err := d.Services.Backends(); err != nil {
		t.Fatal(err)
	}
	d.Services.sets.next = 17 // where chance might begin
	if err := d.Services.Apply([]service.Port{web}, nil); err != nil {
		t.Fatal(err)
	}
	value := d.Services.frontends[frontendOf(web.Entries[0].Frontend)].value
	if value.Id != 42 || value.Internal.Id != 18 {
		t.Errorf("the Service is number %d and its set number %d", value.Id, value.Internal.Id)
	}
}
