package lb

import (
	"runtime"
	"slices"
	"testing"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

// Kernel and agent memory of 10,000 different Services with ten backends, a ClusterIP, a NodePort and a Maglev table.
// The kernel counts elements by size; the allocator rounds that up by at most a quarter for these.
func TestMemoryOfTenThousand(t *testing.T) {
	d := openServices(t, config.Datapath{})
	all := fixtures.Crowd(10_000)
	before := fixtures.Heap()
	if _, err := d.Services.Sync(all); err != nil {
		t.Fatal(err)
	}
	agent := fixtures.Heap() - before
	maps, err := d.DescribeMaps()
	if err != nil {
		t.Fatal(err)
	}
	var kernel, services uint64
	for _, m := range maps {
		if slices.Contains(load.ServiceMaps, m.Name) || slices.Contains(load.TranslationMaps, m.Name) {
			t.Logf("%-16s %7d entries of %7d, %8.2f MB", m.Name, m.Entries, m.MaxEntries, float64(m.Bytes)/1e6)
			services += m.Bytes
		}
		kernel += m.Bytes
	}
	t.Logf("kernel: %.1f MB in maps of Services and translation, %.1f MB in all maps; agent: %.1f MB of heap", float64(services)/1e6, float64(kernel)/1e6, float64(agent)/1e6)
	if kernel > 60e6 { // including 6.7 MB of NAT slots of pods
		t.Errorf("maps take %d bytes", kernel)
	}
	if agent > 20e6 {
		t.Errorf("the agent keeps %d bytes", agent)
	}
	runtime.KeepAlive(all)
}

// Without Services and masquerading, their maps are minimal.
func TestMemoryWithoutServices(t *testing.T) {
	maps, err := testmaps.Open(t, config.Datapath{EBPFRouting: true}).DescribeMaps()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		if (slices.Contains(load.ServiceMaps, m.Name) || slices.Contains(load.TranslationMaps, m.Name)) && m.Bytes > 4096 {
			t.Errorf("map %s takes %d bytes", m.Name, m.Bytes)
		}
	}
}
