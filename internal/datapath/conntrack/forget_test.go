package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/table"
)

// addEntries adds entries of other connections to the table.
func addEntries(tb testing.TB, d *tables, count int) {
	tb.Helper()
	w := table.Writes[bpf.Tuple, bpf.CtEntry]{M: d.Objects.Maps.Conntrack}
	for i := range count {
		other := bpf.AddressOf(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}))
		w.Add(bpf.Tuple{Source: other, Destination: other, SourcePort: uint16(i >> 16), Protocol: fixtures.ProtoTCP}, bpf.CtEntry{})
	}
	if _, err := w.Do(); err != nil {
		tb.Fatal(err)
	}
}

// A table that is too full to read is walked by the program, and at once the next time.
func TestForgetAmongMany(t *testing.T) {
	d := openTable(t)
	pod := netip.MustParseAddr("10.1.0.5")
	own := bpf.Tuple{Source: bpf.AddressOf(netip.MustParseAddr("10.2.0.1")), Destination: bpf.AddressOf(pod), Protocol: fixtures.ProtoTCP}
	for _, others := range []int{0, fewEntries / 2, 2 * fewEntries} {
		addEntries(t, d, others)
		if err := d.Objects.Maps.Conntrack.Put(own, bpf.CtEntry{}); err != nil {
			t.Fatal(err)
		}
		if err := d.Conntrack.Forget(pod); err != nil {
			t.Fatal(err)
		}
		if err := d.Objects.Maps.Conntrack.Lookup(own, &bpf.CtEntry{}); !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Errorf("the pod's entry among %d others: %v", others, err)
		}
		until := d.Conntrack.many.Load()
		if isMany := until != nil && until.After(time.Now()); isMany != (others > fewEntries) {
			t.Errorf("%d other entries are many: %t", others, isMany)
		}
		left, err := count(d.Objects.Maps.Conntrack)
		if err != nil || left != others {
			t.Errorf("%d entries of others are left, want %d: %v", left, others, err)
		}
	}
}

func count(m *ebpf.Map) (n int, err error) {
	err = table.Read(m, func(*bpf.Tuple, *bpf.CtEntry) { n++ })
	return n, err
}

// BenchmarkForget measures Forget for a pod without connections, among entries of other pods.
func BenchmarkForget(b *testing.B) {
	for _, others := range []int{0, 5000, 100000} {
		b.Run(fmt.Sprintf("entries=%d", others), func(b *testing.B) {
			d := openTable(b)
			addEntries(b, d, others)
			pod := netip.MustParseAddr("10.1.0.5")
			for b.Loop() {
				if err := d.Conntrack.Forget(pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
