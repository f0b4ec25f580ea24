package agent

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/beeline-cni/beeline/internal/datapath"
	"github.com/beeline-cni/beeline/internal/flow"
)

// openSessions are those whose beginning flows have told of and whose end they have not: the datapath pushes out the sessions that are least used
// where its table is full, and tells nobody. They are learned from events, and from each look at the table, which also tells
// which of them are gone. Its methods may be called from several goroutines.
type openSessions struct {
	mu   sync.Mutex
	room int
	all  map[sessionEnds]*openSession
	// look counts the looks at the table.
	look uint64
	// untracked counts sessions for which there was no room.
	untracked atomic.Uint64
}

// sessionEnds tell sessions apart that there are at the same time.
type sessionEnds struct {
	source, destination netip.AddrPort
	protocol            uint8
}

// openSession is what was last known of one.
type openSession struct {
	// last is the event to be told when it is gone.
	last flow.Event
	// look is the one that has found it, or that comes next after it was told of.
	look  uint64
	since time.Time
}

// newOpenSessions has room for this many.
func newOpenSessions(room int) *openSessions {
	return &openSessions{room: room, all: map[sessionEnds]*openSession{}}
}

// told takes note of an event, and says in it what is known of the session besides. If it is the first one about a session in the place
// of one that has not ended, it gives the event that tells of the end of that one.
func (o *openSessions) told(e *flow.Event) (replaced *flow.Event) {
	at := sessionEnds{e.Source, e.Destination, e.Protocol}
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.all[at]; s != nil && e.First && e.Opened.After(s.since) {
		replaced = s.end(e.Opened)
		delete(o.all, at)
	}
	switch e.Kind {
	case flow.Opened, flow.Answered:
		o.note(at, *e, o.look+1)
	case flow.Closed, flow.Revoked:
		if s := o.all[at]; s != nil {
			s.identify(e)
			delete(o.all, at)
		}
	case flow.Dropped:
	}
	return replaced
}

// identify says in an event of the table's, which has no identities, who the ends were.
func (s *openSession) identify(e *flow.Event) {
	if e.SourceIdentity == 0 && e.DestinationIdentity == 0 {
		e.SourceIdentity, e.DestinationIdentity = s.last.SourceIdentity, s.last.DestinationIdentity
	}
}

// end is the event that tells of the end of one that is gone, with what was counted when it was last seen.
func (s *openSession) end(now time.Time) *flow.Event {
	e := s.last
	e.Time, e.Kind, e.PushedOut, e.First = now, flow.Closed, true, false
	e.Program, e.Device, e.TCPFlags = "", 0, 0
	return &e
}

// begin begins a look at the table, and seen takes note of a session that is there, by what sessionEvent makes of it. One whose end has been told is
// not open.
func (o *openSessions) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.look++
}

func (o *openSessions) seen(s datapath.Session, booted time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.Told {
		delete(o.all, sessionEnds{s.Source, s.Destination, s.Protocol})
		return
	}
	o.note(sessionEnds{s.Source, s.Destination, s.Protocol}, sessionEvent(s, booted), o.look)
}

// note must be called with the lock. An event that was read late counts less.
func (o *openSessions) note(at sessionEnds, e flow.Event, look uint64) {
	s := o.all[at]
	if s == nil {
		if len(o.all) >= o.room {
			if e.First { // once for each
				o.untracked.Add(1)
			}
			return
		}
		s = &openSession{since: time.Now()}
		o.all[at] = s
	}
	s.identify(&e)
	if e.Packets[0] < s.last.Packets[0] || e.Packets[1] < s.last.Packets[1] {
		e.Packets, e.Bytes = s.last.Packets, s.last.Bytes
	}
	s.last = e
	s.look = max(s.look, look)
}

// gone ends a look that has seen the whole table: it forgets those that were not there, and gives the event that tells of the end of each.
func (o *openSessions) gone(now time.Time) (all []flow.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at, s := range o.all {
		if s.look >= o.look {
			continue
		}
		delete(o.all, at)
		all = append(all, *s.end(now))
	}
	return all
}

// losses counts sessions whose end will not be told if they are pushed out.
func (o *openSessions) losses() flow.Loss {
	return flow.Loss{
		Kind: flow.Closed, Why: "untracked", Events: o.untracked.Load(),
		Meaning: "more connections than twice --sessions-max began between two looks at the table: of those that were pushed out of it, no end is told",
	}
}

// sessionEvent is the event that tells of the end of a session. Of what is no packet's it lacks the time. booted is when the datapath's clock was 0.
func sessionEvent(s datapath.Session, booted time.Time) flow.Event {
	return flow.Event{
		Kind: flow.Closed, Opened: booted.Add(s.Opened), Protocol: s.Protocol, Source: s.Source, Destination: s.Destination,
		Packets: s.Packets, Bytes: s.Bytes, Ingress: s.Ingress, Egress: s.Egress,
	}
}
