package flow

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/beeline-cni/beeline/internal/datapath/conntrack"
	"github.com/beeline-cni/beeline/internal/flow"
)

// opened is the first event of a connection with the ends of quiet, and the port.
func newEvent(port uint16, at time.Time) flow.Event {
	return flow.Event{
		Time: at, Created: at, First: true, Kind: flow.KindNew, Protocol: 17, Source: netip.MustParseAddrPort("10.1.1.2:40000"), Destination: netip.AddrPortFrom(netip.MustParseAddr("10.1.2.2"), port),
		SourceIdentity: 3, DestinationIdentity: 4, Packets: [2]uint64{1, 0}, Bytes: [2]uint64{100, 0}, Egress: 5, Program: "from_pod", Device: 7,
	}
}

// lookAt makes a pass over a table with these entries.
func lookAt(o *openConnections, table ...conntrack.Entry) []flow.Event {
	o.begin()
	for _, s := range table {
		o.seen(s, time.Time{})
	}
	return o.gone(time.Now())
}

func expectEnds(t *testing.T, what string, got []flow.Event, want ...flow.Event) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.IgnoreFields(flow.Event{}, "Time", "Created")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// ofOpened is the end event of such a connection after its eviction, with these counts.
func ofOpened(port uint16, packets, bytes [2]uint64) flow.Event {
	e := newEvent(port, time.Time{})
	e.Kind, e.First, e.Evicted, e.Program, e.Device, e.Packets, e.Bytes = flow.KindClosed, false, true, "", 0, packets, bytes
	return e
}

// A connection that is gone from the table without an end event was evicted, and is reported with its last known
// state.
func TestOpenConnectionsGone(t *testing.T) {
	o := newOpenConnections(10)
	e := newEvent(53, time.Now())
	o.note(&e)
	expectEnds(t, "reported during a pass", o.gone(time.Now()))
	s := quiet(1)
	expectEnds(t, "in the table", lookAt(o, s))
	expectEnds(t, "gone", lookAt(o), ofOpened(53, s.Packets, s.Bytes))
	expectEnds(t, "reported once", lookAt(o))

	e = newEvent(54, time.Now())
	o.note(&e)
	expectEnds(t, "before a look that may not have found it yet", lookAt(o))
	expectEnds(t, "never found", lookAt(o), ofOpened(54, [2]uint64{1, 0}, [2]uint64{100, 0}))
}

// A connection whose end the datapath reported, or that was revoked, is not reported again, in whatever order.
func TestOpenConnectionsEnded(t *testing.T) {
	o := newOpenConnections(10)
	for _, kind := range []flow.Kind{flow.KindClosed, flow.KindRevoked} {
		e := newEvent(53, time.Now())
		o.note(&e)
		e.Kind, e.First, e.SourceIdentity, e.DestinationIdentity = kind, false, 0, 0
		o.note(&e)
		if e.SourceIdentity != 3 || e.DestinationIdentity != 4 {
			t.Errorf("%s: identities %d and %d", kind, e.SourceIdentity, e.DestinationIdentity)
		}
		lookAt(o)
		expectEnds(t, kind.String(), lookAt(o))
	}
	lookAt(o, quiet(1))
	ended := quiet(1)
	ended.Reported = true
	expectEnds(t, "the table says so", lookAt(o, ended))
	expectEnds(t, "gone after that", lookAt(o))
}

// Where a connection replaces an evicted one, the end of that one comes first; an event that was read late starts
// none.
func TestOpenConnectionsReplaced(t *testing.T) {
	o := newOpenConnections(10)
	s := quiet(1)
	lookAt(o, s)
	late, anew := newEvent(53, time.Now().Add(-time.Second)), newEvent(53, time.Now().Add(time.Second))
	if replaced := o.note(&late); replaced != nil {
		t.Errorf("an event from before: %+v", replaced)
	}
	replaced := o.note(&anew)
	if replaced == nil {
		t.Fatal("nothing is reported")
	}
	expectEnds(t, "replaced", []flow.Event{*replaced}, ofOpened(53, s.Packets, s.Bytes))
	lookAt(o)
	expectEnds(t, "the new one", lookAt(o), ofOpened(53, [2]uint64{1, 0}, [2]uint64{100, 0}))
}

// The number of tracked connections is bounded, and those beyond it are counted.
func TestOpenConnectionsCapacity(t *testing.T) {
	o := newOpenConnections(2)
	for port := range uint16(5) {
		e := newEvent(53+port, time.Now())
		o.note(&e)
		e.Kind, e.First = flow.KindReplied, false
		o.note(&e)
	}
	if l := o.losses(); l.Events != 3 || l.Kind != flow.KindClosed || len(o.all) != 2 {
		t.Errorf("%d are tracked, losses %+v", len(o.all), l)
	}
}

// A connection with a single event ends the one that it replaces, and leaves none open itself, whether or not the
// bound is reached.
func TestOpenConnectionsReportedOnce(t *testing.T) {
	o := newOpenConnections(1)
	s, first := quiet(1), newEvent(53, time.Now())
	o.note(&first)
	lookAt(o, s)
	short := newEvent(53, time.Now().Add(time.Second))
	short.Kind = flow.KindClosed
	replaced := o.note(&short)
	if replaced == nil || len(o.all) != 0 {
		t.Fatalf("replaced %+v, open %d", replaced, len(o.all))
	}
	expectEnds(t, "replaced", []flow.Event{*replaced}, ofOpened(53, s.Packets, s.Bytes))
	long, other := newEvent(54, time.Now()), newEvent(55, time.Now())
	other.Kind = flow.KindClosed
	o.note(&long)
	if replaced := o.note(&other); replaced != nil || len(o.all) != 1 || o.losses().Events != 0 {
		t.Errorf("replaced %+v, open %d, losses %+v", replaced, len(o.all), o.losses())
	}
}

// The end event from the table has the start time of the connection.
func TestEndEventHasCreationTime(t *testing.T) {
	booted := time.Now().Add(-time.Hour)
	if e := endEvent(quiet(time.Minute), booted); !e.Created.Equal(booted.Add(time.Minute)) {
		t.Errorf("opened at %s, booted at %s", e.Created, booted)
	}
}
