package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/beeline-cni/beeline/internal/cluster"
	"github.com/beeline-cni/beeline/internal/datapath/bpf"
	"github.com/beeline-cni/beeline/internal/datapath/config"
	"github.com/beeline-cni/beeline/internal/datapath/internal/fixtures"
	"github.com/beeline-cni/beeline/internal/datapath/internal/testmaps"
	"github.com/beeline-cni/beeline/internal/datapath/load"
)

const (
	isReplied   = uint32(bpf.CtFlagCT_REPLIED)
	isTurned    = uint32(bpf.CtFlagCT_REVERSED)
	hasFIN      = uint32(bpf.CtFlagCT_FIN)
	hasOtherFIN = uint32(bpf.CtFlagCT_REPLY_FIN)
	hasReset    = uint32(bpf.CtFlagCT_RESET)
)

// tables are the conntrack maps with their table.
type tables struct {
	*load.Objects
	Conntrack *Table
}

// openTable opens the conntrack maps.
func openTable(tb testing.TB) *tables {
	tb.Helper()
	o := testmaps.Open(tb, config.Datapath{Policy: true})
	s := New(&o.Maps, o.Programs)
	if err := s.Divide(); err != nil {
		tb.Fatal(err)
	}
	return &tables{o, s}
}

// An entry expires when it has been idle for the timeout of its state, not a second earlier, and is passed to the
// callback.
func TestEntriesExpire(t *testing.T) {
	const tcp, udp, sctp = uint8(cluster.TCP), uint8(cluster.UDP), uint8(cluster.SCTP)
	for _, c := range []struct {
		name     string
		protocol uint8
		flags    uint32
		timeout  time.Duration
		state    State
	}{
		{"TCP established", tcp, isReplied, 6 * time.Hour, StateEstablished},
		{"TCP without a reply", tcp, 0, time.Minute, StateNew},
		{"TCP, who opened it has sent FIN", tcp, isReplied | hasFIN, 4 * time.Minute, StateClosing},
		{"TCP, the other end has sent FIN", tcp, isReplied | hasOtherFIN, 4 * time.Minute, StateClosing},
		{"TCP, both ends have sent FIN", tcp, isReplied | hasFIN | hasOtherFIN, 10 * time.Second, StateClosed},
		{"TCP refused", tcp, isReplied | hasReset, 10 * time.Second, StateClosed},
		{"TCP given up", tcp, hasReset, 10 * time.Second, StateClosed},
		{"UDP", udp, isReplied, 2 * time.Minute, StateEstablished},
		{"UDP has no FIN", udp, isReplied | hasFIN | hasReset, 2 * time.Minute, StateEstablished},
		{"UDP without a reply", udp, 0, time.Minute, StateNew},
		{"SCTP", sctp, isReplied, 2 * time.Minute, StateEstablished},
		{"ICMP echo", uint8(cluster.ICMP), isReplied, time.Minute, StateEstablished},
		{"ICMPv6 echo", uint8(cluster.ICMPv6), isReplied | isTurned, time.Minute, StateEstablished},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openTable(t)
			put := func(quiet time.Duration) Entry {
				key := bpf.Tuple{
					Source: bpf.AddressOf(fixtures.PodA.V4), Destination: bpf.AddressOf(fixtures.PodB.V4), SourcePort: bpf.NetworkOrder(40000), DestinationPort: bpf.NetworkOrder(80),
					Protocol: c.protocol,
				}
				value := bpf.CtEntry{
					Created: uint64(time.Hour), Seen: uint64(fixtures.SomeTime - quiet), Packets: [2]uint64{1, 2}, Bytes: [2]uint64{3, 4}, Revision: 5,
					Ingress: 6, Egress: 7, Flags: c.flags,
				}
				if err := d.Objects.Maps.Conntrack.Put(key, value); err != nil {
					t.Fatal(err)
				}
				s := Entry{
					Source: netip.AddrPortFrom(fixtures.PodA.V4, 40000), Destination: netip.AddrPortFrom(fixtures.PodB.V4, 80), Protocol: c.protocol, State: c.state,
					Created: time.Hour, Seen: fixtures.SomeTime - quiet, Packets: [2]uint64{1, 2}, Bytes: [2]uint64{3, 4}, Revision: 5, Ingress: 6, Egress: 7,
				}
				if c.flags&isTurned != 0 {
					s.Source, s.Destination = s.Destination, s.Source
				}
				return s
			}
			check := func(want []Entry, wantAll []Entry) {
				t.Helper()
				var ended []Entry
				if removed, err := d.Conntrack.Expire(fixtures.SomeTime, nil, func(s Entry) { ended = append(ended, s) }); err != nil || removed != len(want) {
					t.Errorf("%d are removed: %v", removed, err)
				}
				if diff := cmp.Diff(want, ended, fixtures.CompareEntries); diff != "" {
					t.Errorf("ended (-wanted +got):\n%s", diff)
				}
				if diff := cmp.Diff([]Count{{c.protocol, c.state, 1}}, d.Conntrack.Counts()); diff != "" {
					t.Errorf("counts (-wanted +got):\n%s", diff)
				}
				var all []Entry
				if _, err := d.Conntrack.Expire(0, func(s Entry) { all = append(all, s) }, nil); err != nil { // at time 0 nothing expires
					t.Fatal(err)
				}
				if diff := cmp.Diff(wantAll, all, fixtures.CompareEntries); diff != "" {
					t.Errorf("entries (-wanted +kernel):\n%s", diff)
				}
			}
			early := put(c.timeout - time.Second)
			check(nil, []Entry{early})
			check([]Entry{put(c.timeout)}, nil)
		})
	}
}

// The callbacks are optional, and an entry that has a packet meanwhile is retained.
func TestEntriesUsedMeanwhile(t *testing.T) {
	d := openTable(t)
	for port := range uint16(100) {
		key := bpf.Tuple{Source: bpf.AddressOf(fixtures.PodA.V4), Destination: bpf.AddressOf(fixtures.PodB.V4), DestinationPort: bpf.NetworkOrder(port), Protocol: fixtures.ProtoUDP}
		if err := d.Objects.Maps.Conntrack.Put(key, bpf.CtEntry{}); err != nil {
			t.Fatal(err)
		}
	}
	first := true
	removed, err := d.Conntrack.Expire(fixtures.SomeTime, nil, func(s Entry) {
		if !first {
			return
		}
		first = false
		for port := range uint16(100) { // all others have a packet while the first is passed to the callback
			key := bpf.Tuple{Source: bpf.AddressOf(fixtures.PodA.V4), Destination: bpf.AddressOf(fixtures.PodB.V4), DestinationPort: bpf.NetworkOrder(port), Protocol: fixtures.ProtoUDP}
			if err := d.Objects.Maps.Conntrack.Put(key, bpf.CtEntry{Seen: uint64(fixtures.SomeTime)}); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil || removed != 1 {
		t.Errorf("%d are removed: %v", removed, err)
	}
	if removed, err := d.Conntrack.Expire(2*fixtures.SomeTime, nil, nil); err != nil || removed != 100 {
		t.Errorf("%d are removed: %v", removed, err)
	}
}
