package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// addSessions puts sessions between others into the table.
func addSessions(tb testing.TB, d *sessionTables, count int) {
	tb.Helper()
	w := writes[bpfTuple, bpfCtEntry]{m: d.objects.maps.Conntrack}
	for i := range count {
		other := addressOf(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}))
		w.add(bpfTuple{Source: other, Destination: other, SourcePort: uint16(i >> 16), Protocol: protoTCP}, bpfCtEntry{})
	}
	if _, err := w.do(); err != nil {
		tb.Fatal(err)
	}
}

// Where the table is too full to be read, the program looks through it, and does so at once the next time.
func TestForgetAmongMany(t *testing.T) {
	d := openSessions(t)
	pod := netip.MustParseAddr("10.1.0.5")
	own := bpfTuple{Source: addressOf(netip.MustParseAddr("10.2.0.1")), Destination: addressOf(pod), Protocol: protoTCP}
	for _, others := range []int{0, fewSessions / 2, 2 * fewSessions} {
		addSessions(t, d, others)
		if err := d.objects.maps.Conntrack.Put(own, bpfCtEntry{}); err != nil {
			t.Fatal(err)
		}
		if err := d.Sessions.Forget(pod); err != nil {
			t.Fatal(err)
		}
		if err := d.objects.maps.Conntrack.Lookup(own, &bpfCtEntry{}); !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Errorf("the pod's session among %d others: %v", others, err)
		}
		until := d.Sessions.many.Load()
		if isMany := until != nil && until.After(time.Now()); isMany != (others > fewSessions) {
			t.Errorf("%d other sessions are many: %t", others, isMany)
		}
		left, err := count(d.objects.maps.Conntrack)
		if err != nil || left != others {
			t.Errorf("%d sessions of others are left, want %d: %v", left, others, err)
		}
	}
}

func count(m *ebpf.Map) (n int, err error) {
	err = readAll(m, func(*bpfTuple, *bpfCtEntry) { n++ })
	return n, err
}

// BenchmarkForget forgets a pod that has no session, among sessions of others.
func BenchmarkForget(b *testing.B) {
	for _, others := range []int{0, 5000, 100000} {
		b.Run(fmt.Sprintf("sessions=%d", others), func(b *testing.B) {
			d := openSessions(b)
			addSessions(b, d, others)
			pod := netip.MustParseAddr("10.1.0.5")
			for b.Loop() {
				if err := d.Sessions.Forget(pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
