package lb

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
)

// A failed recovery leaves no state: the next one counts users of sets and tables anew, so that they are deleted with
// the last one.
func TestServicesRecoverAgain(t *testing.T) {
	d := openServices(t, config.Datapath{})
	all := fixtures.Crowd(3)
	if _, err := d.Services.Sync(all); err != nil {
		t.Fatal(err)
	}
	d = restart(t, d)
	affinities := d.Services.affinities.here
	broken, err := affinities.Clone()
	if err != nil {
		t.Fatal(err)
	}
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*ebpf.Map{broken, broken, affinities} {
		d.Services.affinities.here = m
		if _, err := d.Services.Backends(); (err == nil) != (m == affinities) {
			t.Fatalf("recovering says %v", err)
		}
	}
	if n := len(d.Services.strangers); n != 2*len(all) { // a ClusterIP and a NodePort each
		t.Errorf("%d numbers are taken for an earlier agent's", n)
	}
	if changed, err := d.Services.Sync(all); err != nil || changed != 0 {
		t.Errorf("%d entries changed: %v", changed, err)
	}
	holds(t, d.Services, all...)
	if _, err := d.Services.Sync(nil); err != nil {
		t.Fatal(err)
	}
	later(t, d.Services)
	for name, n := range entries(t, d.Services) {
		if n != 0 {
			t.Errorf("%d entries of map %s are left", n, name)
		}
	}
}

// Recreated tables have other ids: sockets may keep the old ones.
func TestNumbersBeginAnywhere(t *testing.T) {
	numbers := map[uint32]bool{}
	const tables = 4
	for range tables {
		d := openServices(t, config.Datapath{})
		if _, err := d.Services.Sync(fixtures.Crowd(1)); err != nil {
			t.Fatal(err)
		}
		for _, h := range d.Services.frontends {
			if side := h.value.Internal; side.MaglevSize > 0 {
				numbers[side.Id], numbers[side.Maglev] = true, true
			}
		}
	}
	if len(numbers) != 2*tables { // wrong with a probability of about 10^-8
		t.Errorf("the numbers of %d tables and sets of backends are %v", 2*tables, numbers)
	}
}
