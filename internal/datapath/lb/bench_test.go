package lb

import (
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/service"
)

const tenThousand = 10_000

// BenchmarkSyncTenThousand is a first Sync of 10,000 Services, each with ten backends of its own, a ClusterIP and a
// NodePort.
func BenchmarkSyncTenThousand(b *testing.B) {
	all := fixtures.Crowd(tenThousand)
	for b.Loop() {
		b.StopTimer()
		d := openServices(b, config.Datapath{})
		b.StartTimer()
		if _, err := d.Services.Sync(all); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := d.Objects.Maps.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkSyncUnchanged is the first Sync of the next agent, on the same state.
func BenchmarkSyncUnchanged(b *testing.B) {
	all := fixtures.Crowd(tenThousand)
	d := openServices(b, config.Datapath{})
	if _, err := d.Services.Sync(all); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if changed, err := New(&d.Objects.Maps, 0).Sync(all); err != nil || changed != 0 {
			b.Fatalf("%d entries are written again: %v", changed, err)
		}
	}
}

// BenchmarkApplyOne adds and removes one backend, with 10,000 Services.
func BenchmarkApplyOne(b *testing.B) {
	all := fixtures.Crowd(tenThousand)
	d := openServices(b, config.Datapath{})
	if _, err := d.Services.Sync(all); err != nil {
		b.Fatal(err)
	}
	full := all[4711]
	less := service.Port{Name: full.Name}
	for _, e := range full.Entries {
		e.Internal.Addresses = e.Internal.Addresses[1:]
		if len(e.External.Addresses) > 0 {
			e.External.Addresses = e.External.Addresses[1:]
		}
		less.Entries = append(less.Entries, e)
	}
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		if err := d.Services.Apply([]service.Port{[]service.Port{less, full}[i%2]}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
