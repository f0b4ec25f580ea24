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

// opened is the event that tells of the beginning of a session of quiet's ends, with the port.
func opened(port uint16, at time.Time) flow.Event {
	return flow.Event{
		Time: at, Opened: at, First: true, Kind: flow.Opened, Protocol: 17, Source: netip.MustParseAddrPort("10.1.1.2:40000"), Destination: netip.AddrPortFrom(netip.MustParseAddr("10.1.2.2"), port),
		SourceIdentity: 3, DestinationIdentity: 4, Packets: [2]uint64{1, 0}, Bytes: [2]uint64{100, 0}, Egress: 5, Program: "from_pod", Device: 7,
	}
}

// lookAt makes a look at a table that holds these sessions.
func lookAt(o *openSessions, table ...conntrack.Entry) []flow.Event {
	o.begin()
	for _, s := range table {
		o.seen(s, time.Time{})
	}
	return o.gone(time.Now())
}

func expectEnds(t *testing.T, what string, got []flow.Event, want ...flow.Event) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.AddrPort{}), cmpopts.IgnoreFields(flow.Event{}, "Time", "Opened")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// ofOpened is the end of such a session that has been pushed out, with these counts.
func ofOpened(port uint16, packets, bytes [2]uint64) flow.Event {
	e := opened(port, time.Time{})
	e.Kind, e.First, e.PushedOut, e.Program, e.Device, e.Packets, e.Bytes = flow.Closed, false, true, "", 0, packets, bytes
	return e
}

// A session that is in the table no more without a word about its end has been pushed out, and is told of with what was last known.
func TestOpenSessionsGone(t *testing.T) {
	o := newOpenSessions(10)
	e := opened(53, time.Now())
	o.note(&e)
	expectEnds(t, "told after the look had begun", o.gone(time.Now()))
	s := quiet(1)
	expectEnds(t, "in the table", lookAt(o, s))
	expectEnds(t, "gone", lookAt(o), ofOpened(53, s.Packets, s.Bytes))
	expectEnds(t, "told once", lookAt(o))

	e = opened(54, time.Now())
	o.note(&e)
	expectEnds(t, "before a look that may not have found it yet", lookAt(o))
	expectEnds(t, "never found", lookAt(o), ofOpened(54, [2]uint64{1, 0}, [2]uint64{100, 0}))
}

// A session whose end was told by the datapath, or that was revoked, is not told of again, whoever hears first.
func TestOpenSessionsEnded(t *testing.T) {
	o := newOpenSessions(10)
	for _, kind := range []flow.Kind{flow.Closed, flow.Revoked} {
		e := opened(53, time.Now())
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

// Where a session begins in the place of one that was pushed out, the end of that one comes first; an event that was only read late begins none.
func TestOpenSessionsReplaced(t *testing.T) {
	o := newOpenSessions(10)
	s := quiet(1)
	lookAt(o, s)
	late, anew := opened(53, time.Now().Add(-time.Second)), opened(53, time.Now().Add(time.Second))
	if replaced := o.note(&late); replaced != nil {
		t.Errorf("an event from before: %+v", replaced)
	}
	replaced := o.note(&anew)
	if replaced == nil {
		t.Fatal("nothing is told")
	}
	expectEnds(t, "replaced", []flow.Event{*replaced}, ofOpened(53, s.Packets, s.Bytes))
	lookAt(o)
	expectEnds(t, "the new one", lookAt(o), ofOpened(53, [2]uint64{1, 0}, [2]uint64{100, 0}))
}

// There is a bound to what is remembered, and what is beyond it is counted.
func TestOpenSessionsRoom(t *testing.T) {
	o := newOpenSessions(2)
	for port := range uint16(5) {
		e := opened(53+port, time.Now())
		o.note(&e)
		e.Kind, e.First = flow.Answered, false
		o.note(&e)
	}
	if l := o.losses(); l.Events != 3 || l.Kind != flow.Closed || len(o.all) != 2 {
		t.Errorf("%d are tracked, losses %+v", len(o.all), l)
	}
}

// A session that is told of once ends the one in whose place it began, and leaves nothing open itself, whether there is room or not.
func TestOpenSessionsToldOfOnce(t *testing.T) {
	o := newOpenSessions(1)
	s, first := quiet(1), opened(53, time.Now())
	o.note(&first)
	lookAt(o, s)
	short := opened(53, time.Now().Add(time.Second))
	short.Kind = flow.Closed
	replaced := o.note(&short)
	if replaced == nil || len(o.all) != 0 {
		t.Fatalf("replaced %+v, open %d", replaced, len(o.all))
	}
	expectEnds(t, "replaced", []flow.Event{*replaced}, ofOpened(53, s.Packets, s.Bytes))
	long, other := opened(54, time.Now()), opened(55, time.Now())
	other.Kind = flow.Closed
	o.note(&long)
	if replaced := o.note(&other); replaced != nil || len(o.all) != 1 || o.losses().Events != 0 {
		t.Errorf("replaced %+v, open %d, losses %+v", replaced, len(o.all), o.losses())
	}
}

// The end that the table tells has when the session was opened.
func TestSessionEventSaysWhenItWasOpened(t *testing.T) {
	booted := time.Now().Add(-time.Hour)
	if e := sessionEvent(quiet(time.Minute), booted); !e.Opened.Equal(booted.Add(time.Minute)) {
		t.Errorf("opened at %s, booted at %s", e.Opened, booted)
	}
}
